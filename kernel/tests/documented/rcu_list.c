// SPDX-License-Identifier: MIT OR Apache-2.0
/* A table of rules that readers walk under RCU while entries are added, replaced and deleted. */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

struct rule {
	struct list_head list;
	int key;
	int value;
	struct rcu_head rcu;
};

struct config {
	int limit;
	struct rcu_head rcu;
};

static LIST_HEAD(rules);
static DEFINE_SPINLOCK(rules_lock);
static struct config __rcu *config;
static atomic_t freed = ATOMIC_INIT(0);
static DECLARE_COMPLETION(started);

static void rule_free(struct rcu_head *head)
{
	struct rule *rule = container_of(head, struct rule, rcu);

	atomic_inc(&freed);
	kfree(rule);
}

static int rule_value(int key)
{
	struct rule *rule;
	int value = -ENOENT;

	rcu_read_lock();
	list_for_each_entry_rcu(rule, &rules, list) {
		if (rule->key == key) {
			value = rule->value;
			break;
		}
	}
	rcu_read_unlock();
	return value;
}

static int rule_add(int key, int value)
{
	struct rule *rule = kmalloc(sizeof(*rule), GFP_KERNEL);

	if (!rule)
		return -ENOMEM;
	rule->key = key;
	rule->value = value;
	spin_lock(&rules_lock);
	list_add_tail_rcu(&rule->list, &rules);
	spin_unlock(&rules_lock);
	return 0;
}

static int rule_update(int key, int value)
{
	struct rule *old, *new;

	new = kmalloc(sizeof(*new), GFP_KERNEL);
	if (!new)
		return -ENOMEM;
	spin_lock(&rules_lock);
	list_for_each_entry(old, &rules, list) {
		if (old->key == key) {
			*new = *old;
			new->value = value;
			list_replace_rcu(&old->list, &new->list);
			spin_unlock(&rules_lock);
			call_rcu(&old->rcu, rule_free);
			return 0;
		}
	}
	spin_unlock(&rules_lock);
	kfree(new);
	return -ENOENT;
}

static void rules_clear(void)
{
	struct rule *rule, *next;

	spin_lock(&rules_lock);
	list_for_each_entry_safe(rule, next, &rules, list) {
		list_del_rcu(&rule->list);
		call_rcu(&rule->rcu, rule_free);
	}
	spin_unlock(&rules_lock);
}

static int set_limit(int limit)
{
	struct config *new, *old;

	new = kzalloc(sizeof(*new), GFP_KERNEL);
	if (!new)
		return -ENOMEM;
	new->limit = limit;
	spin_lock(&rules_lock);
	old = rcu_dereference_protected(config, lockdep_is_held(&rules_lock));
	rcu_assign_pointer(config, new);
	spin_unlock(&rules_lock);
	if (old)
		kfree_rcu(old, rcu);
	return 0;
}

static int reader(void *unused)
{
	int bad = 0;

	complete(&started);
	while (!kthread_should_stop()) {
		struct config *c;
		int value = rule_value(2);

		if (value != 20 && value != 21)
			bad++;
		rcu_read_lock();
		c = rcu_dereference(config);
		if (c && c->limit < 0)
			bad++;
		rcu_read_unlock();
		cond_resched();
	}
	return bad;
}

static int __init rules_init(void)
{
	struct task_struct *task;
	int i, ret;

	for (i = 1; i <= 3; i++) {
		ret = rule_add(i, i * 10);
		if (ret)
			goto out;
	}
	task = kthread_run(reader, NULL, "reader");
	if (IS_ERR(task)) {
		ret = PTR_ERR(task);
		goto out;
	}
	wait_for_completion(&started);
	for (i = 0; i < 50 && !ret; i++) {
		ret = rule_update(2, 20 + i % 2);
		if (!ret)
			ret = set_limit(i);
	}
	synchronize_rcu();
	if (kthread_stop(task) || rule_value(9) != -ENOENT)
		ret = -EINVAL;
out:
	if (ret) {
		rules_clear();
		rcu_barrier();
	}
	return ret;
}

static void __exit rules_exit(void)
{
	rules_clear();
	kfree(rcu_dereference_protected(config, 1));
	rcu_barrier();
	if (list_empty(&rules) && atomic_read(&freed) == 53)
		pr_info("rcu: passed\n");
}

module_init(rules_init);
module_exit(rules_exit);
MODULE_LICENSE("GPL");
