// SPDX-License-Identifier: MIT OR Apache-2.0
/* Sleepable RCU: readers that sleep, a static and a dynamic domain, and callbacks. */
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/srcu.h>

struct object {
	int value;
	struct rcu_head rcu;
};

DEFINE_STATIC_SRCU(static_srcu);
static struct srcu_struct dynamic_srcu;
static struct object __rcu *object;
static int freed;
static DECLARE_COMPLETION(entered);

static void object_free(struct rcu_head *rcu)
{
	kfree(container_of(rcu, struct object, rcu));
	freed++;
}

static int reader(void *unused)
{
	int idx, value;

	idx = srcu_read_lock(&static_srcu);
	complete(&entered);
	msleep(2);
	value = srcu_dereference(object, &static_srcu)->value;
	srcu_read_unlock(&static_srcu, idx);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return value;
}

static int __init sleepable_init(void)
{
	struct object *first, *second;
	struct task_struct *task;
	int idx, ret;

	ret = init_srcu_struct(&dynamic_srcu);
	if (ret)
		return ret;
	first = kzalloc(sizeof(*first), GFP_KERNEL);
	second = kzalloc(sizeof(*second), GFP_KERNEL);
	if (!first || !second) {
		ret = -ENOMEM;
		goto err;
	}
	first->value = 1;
	second->value = 2;
	rcu_assign_pointer(object, first);

	task = kthread_run(reader, NULL, "srcu-reader");
	if (IS_ERR(task)) {
		ret = PTR_ERR(task);
		goto err;
	}
	wait_for_completion(&entered);
	rcu_assign_pointer(object, second);
	call_srcu(&static_srcu, &first->rcu, object_free);
	synchronize_srcu(&static_srcu);
	ret = kthread_stop(task);
	if (ret < 1 || ret > 2)
		return -EINVAL;
	srcu_barrier(&static_srcu);

	idx = srcu_read_lock(&dynamic_srcu);
	srcu_read_unlock(&dynamic_srcu, idx);
	synchronize_srcu_expedited(&dynamic_srcu);
	return 0;
err:
	kfree(first);
	kfree(second);
	cleanup_srcu_struct(&dynamic_srcu);
	return ret;
}

static void __exit sleepable_exit(void)
{
	struct object *last = rcu_dereference_protected(object, true);

	RCU_INIT_POINTER(object, NULL);
	call_srcu(&dynamic_srcu, &last->rcu, object_free);
	srcu_barrier(&dynamic_srcu);
	cleanup_srcu_struct(&dynamic_srcu);
	if (freed == 2)
		pr_info("srcu: passed\n");
}

module_init(sleepable_init);
module_exit(sleepable_exit);
MODULE_LICENSE("GPL");
