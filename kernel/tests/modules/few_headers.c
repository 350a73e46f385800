// SPDX-License-Identifier: MIT OR Apache-2.0
/* Includes only the headers of the functions that it calls, and relies on them for the types. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/workqueue.h>
#include <linux/kthread.h>
#include <linux/slab.h>

struct stage {
	struct list_head node;
	struct llist_node lnode;
	struct work_struct work;
	struct delayed_work dwork;
	struct completion done;
	struct kref ref;
	refcount_t users;
	ktime_t begin, end;
	atomic64_t sum;
	spinlock_t lock;
	struct mutex mutex;
	struct rw_semaphore sem;
	wait_queue_head_t wait;
	cpumask_var_t mask;
	char page[PAGE_SIZE];
};

static DEFINE_PER_CPU(u64, hits);
static LIST_HEAD(stages);
static LLIST_HEAD(finished);
static unsigned int nr_stages = 4;
module_param(nr_stages, uint, S_IRUGO);
MODULE_PARM_DESC(nr_stages, "how many");

static void stage_release(struct kref *ref)
{
	struct stage *stage = container_of(ref, struct stage, ref);

	free_cpumask_var(stage->mask);
	kfree(stage);
}

static void stage_fn(struct work_struct *work)
{
	struct stage *stage = container_of(work, struct stage, work);

	might_sleep();
	this_cpu_inc(hits);
	mutex_lock(&stage->mutex);
	stage->end = ktime_get();
	atomic64_add(ktime_to_ns(ktime_sub(stage->end, stage->begin)), &stage->sum);
	mutex_unlock(&stage->mutex);
	llist_add(&stage->lnode, &finished);
	wake_up(&stage->wait);
	complete(&stage->done);
}

static void later_fn(struct work_struct *work)
{
	struct stage *stage = container_of(to_delayed_work(work), struct stage, dwork);

	queue_work(system_unbound_wq, &stage->work);
}

static int __init few_init(void)
{
	struct stage *stage, *tmp;
	u64 total = 0;
	int cpu, err = 0;
	unsigned int i;

	for (i = 0; i < nr_stages; i++) {
		stage = kzalloc_node(sizeof(*stage), GFP_KERNEL, NUMA_NO_NODE);
		if (!stage || !zalloc_cpumask_var(&stage->mask, GFP_KERNEL))
			return -ENOMEM;
		cpumask_copy(stage->mask, cpu_possible_mask);
		INIT_WORK(&stage->work, stage_fn);
		INIT_DELAYED_WORK(&stage->dwork, later_fn);
		init_completion(&stage->done);
		kref_init(&stage->ref);
		refcount_set(&stage->users, 1);
		spin_lock_init(&stage->lock);
		mutex_init(&stage->mutex);
		init_rwsem(&stage->sem);
		init_waitqueue_head(&stage->wait);
		stage->begin = ktime_get();
		list_add_tail(&stage->node, &stages);
		schedule_delayed_work(&stage->dwork, msecs_to_jiffies(2));
	}
	list_for_each_entry(stage, &stages, node) {
		wait_for_completion(&stage->done);
		flush_work(&stage->work);
	}
	for_each_possible_cpu(cpu)
		total += per_cpu(hits, cpu);
	if (WARN_ON(total != nr_stages) || llist_empty(&finished) || in_softirq())
		err = -EINVAL;
	list_for_each_entry_safe(stage, tmp, &stages, node) {
		list_del(&stage->node);
		kref_put(&stage->ref, stage_release);
	}
	pr_info("%llu stages, %lu s\n", total, (unsigned long)(ktime_get_ns() / NSEC_PER_SEC));
	return err;
}

static void __exit few_exit(void)
{
}

module_init(few_init);
module_exit(few_exit);
MODULE_LICENSE("Dual MIT/GPL");
