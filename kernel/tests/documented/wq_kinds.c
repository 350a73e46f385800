// SPDX-License-Identifier: MIT OR Apache-2.0
/* Queues of all kinds: ordered, unbound, high priority, CPU intensive, bottom half, with attributes. */
#include <linux/cpu.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/workqueue.h>

#define ITEMS 20

struct step {
	struct work_struct work;
	int number;
};

static struct step steps[ITEMS];
static int next;
static bool in_order = true;
static atomic_t ran = ATOMIC_INIT(0);

static void step_fn(struct work_struct *work)
{
	struct step *step = container_of(work, struct step, work);

	if (step->number != next++)
		in_order = false;
}

static void run_fn(struct work_struct *work)
{
	atomic_inc(&ran);
}

static long cpu_fn(void *arg)
{
	return raw_smp_processor_id() == (int)(long)arg;
}

static int try_queue(const char *name, unsigned int flags, int max_active)
{
	struct workqueue_struct *wq = alloc_workqueue("%s-%u", flags, max_active, name, flags);
	struct work_struct work;
	int cpu;

	if (!wq)
		return -ENOMEM;
	atomic_set(&ran, 0);
	INIT_WORK_ONSTACK(&work, run_fn);
	queue_work(wq, &work);
	flush_work(&work);
	cpu = cpumask_first(cpu_online_mask);
	queue_work_on(cpu, wq, &work);
	flush_work(&work);
	destroy_work_on_stack(&work);
	destroy_workqueue(wq);
	return atomic_read(&ran) == 2 ? 0 : -EINVAL;
}

static int try_attrs(void)
{
	struct workqueue_struct *wq = alloc_workqueue("attrs", WQ_UNBOUND | WQ_SYSFS, 0);
	struct workqueue_attrs *attrs;
	int ret = -ENOMEM;

	if (!wq)
		return ret;
	attrs = alloc_workqueue_attrs();
	if (attrs) {
		attrs->nice = 5;
		attrs->affn_scope = WQ_AFFN_CACHE;
		cpumask_copy(attrs->cpumask, cpu_possible_mask);
		cpus_read_lock();
		ret = apply_workqueue_attrs(wq, attrs);
		cpus_read_unlock();
		free_workqueue_attrs(attrs);
	}
	workqueue_set_max_active(wq, 3);
	destroy_workqueue(wq);
	return ret;
}

static int __init kinds_init(void)
{
	struct workqueue_struct *ordered;
	int i, cpu, ret;

	ordered = alloc_ordered_workqueue("ordered-%d", WQ_MEM_RECLAIM, 1);
	if (!ordered)
		return -ENOMEM;
	for (i = 0; i < ITEMS; i++) {
		steps[i].number = i;
		INIT_WORK(&steps[i].work, step_fn);
		queue_work(ordered, &steps[i].work);
	}
	destroy_workqueue(ordered);
	if (!in_order || next != ITEMS)
		return -EINVAL;

	ret = try_queue("percpu", 0, 0);
	ret = ret ?: try_queue("unbound", WQ_UNBOUND, WQ_UNBOUND_MAX_ACTIVE);
	ret = ret ?: try_queue("high", WQ_HIGHPRI, 1);
	ret = ret ?: try_queue("computing", WQ_CPU_INTENSIVE, 0);
	ret = ret ?: try_queue("bh", WQ_BH, 0);
	ret = ret ?: try_queue("bh-high", WQ_BH | WQ_HIGHPRI, 0);
	ret = ret ?: try_attrs();
	if (ret)
		return ret;
	for_each_online_cpu(cpu)
		if (work_on_cpu(cpu, cpu_fn, (void *)(long)cpu) != 1)
			return -EINVAL;

	{
		static DECLARE_WORK(work, run_fn);
		struct workqueue_struct *queues[] = {
			system_wq, system_highpri_wq, system_long_wq, system_unbound_wq,
			system_freezable_wq, system_power_efficient_wq, system_bh_wq,
		};

		atomic_set(&ran, 0);
		for (i = 0; i < ARRAY_SIZE(queues); i++) {
			queue_work(queues[i], &work);
			flush_work(&work);
		}
		if (atomic_read(&ran) != ARRAY_SIZE(queues))
			return -EINVAL;
	}
	pr_info("kinds: passed\n");
	return 0;
}

static void __exit kinds_exit(void)
{
}

module_init(kinds_init);
module_exit(kinds_exit);
MODULE_LICENSE("GPL");
