// SPDX-License-Identifier: MIT OR Apache-2.0
/* Grace periods that are polled, kfree_rcu, and work behind a grace period. */
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>
#include <linux/rculist.h>

struct entry { struct list_head list; int key; struct rcu_head rcu; };
static LIST_HEAD(entries);
static DEFINE_MUTEX(entries_lock);
static int later_runs;
DEFINE_STATIC_SRCU(domain);

static void later(struct work_struct *work)
{
	struct rcu_work *rwork = to_rcu_work(work);

	later_runs += rwork != NULL;
}

static struct entry *find(int key)
{
	struct entry *e;

	list_for_each_entry_rcu(e, &entries, list, lockdep_is_held(&entries_lock))
		if (e->key == key)
			return e;
	return NULL;
}

static int __init grace_polls_init(void)
{
	struct rcu_work rwork;
	struct entry *e, *tmp;
	unsigned long cookie;
	bool passed;
	int i, index;

	for (i = 0; i < 10; i++) {
		e = kmalloc(sizeof(*e), GFP_KERNEL);
		if (!e)
			return -ENOMEM;
		e->key = i;
		list_add_tail_rcu(&e->list, &entries);
	}
	rcu_read_lock();
	if (!find(9) || find(10) || !rcu_read_lock_held()) {
		rcu_read_unlock();
		return -EINVAL;
	}
	rcu_read_unlock();
	index = srcu_read_lock(&domain);
	srcu_read_unlock(&domain, index);
	synchronize_srcu(&domain);
	mutex_lock(&entries_lock);
	list_for_each_entry_safe(e, tmp, &entries, list) {
		list_del_rcu(&e->list);
		kfree_rcu(e, rcu);
	}
	mutex_unlock(&entries_lock);
	/* No grace period that is asked for inside a read side ends before it. */
	rcu_read_lock();
	cookie = start_poll_synchronize_rcu();
	passed = poll_state_synchronize_rcu(cookie);
	rcu_read_unlock();
	if (passed)
		return -EINVAL;
	/* It ends without a further call. */
	while (!poll_state_synchronize_rcu(cookie))
		cond_resched();
	cookie = start_poll_synchronize_rcu();
	cond_synchronize_rcu(cookie);
	if (!poll_state_synchronize_rcu(cookie) || !poll_state_synchronize_rcu(get_completed_synchronize_rcu()))
		return -EINVAL;
	rcu_barrier();
	/* What has passed does not count for a later state. */
	rcu_read_lock();
	cookie = get_state_synchronize_rcu();
	passed = poll_state_synchronize_rcu(cookie);
	rcu_read_unlock();
	if (passed)
		return -EINVAL;
	synchronize_rcu_expedited();
	if (!poll_state_synchronize_rcu(cookie) || !list_empty(&entries))
		return -EINVAL;
	INIT_RCU_WORK_ONSTACK(&rwork, later);
	if (!queue_rcu_work(system_wq, &rwork))
		return -EINVAL;
	flush_rcu_work(&rwork);
	rcu_barrier();
	if (later_runs != 1)
		return -EINVAL;
	pr_info("grace_polls: passed\n");
	return 0;
}

static void __exit grace_polls_exit(void) {}
module_init(grace_polls_init);
module_exit(grace_polls_exit);
MODULE_LICENSE("GPL");
