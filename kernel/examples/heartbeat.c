// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A complete module: a timer that queues an item, a delayed item that queues itself, per-CPU data,
 * and an RCU item that frees replaced data. The exit function cancels everything.
 *
 *	./heartbeat period_ms=20 uw.seconds=0.5
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

static unsigned int period_ms = 50;
module_param(period_ms, uint, 0644);
MODULE_PARM_DESC(period_ms, "milliseconds between two beats");

static DEFINE_PER_CPU(unsigned long, beats);

/* The result of the last beat. Readers use RCU; the beats replace it, one at a time. */
struct summary {
	unsigned long number;
	unsigned long total;
	struct rcu_work rwork;
};

static struct summary __rcu *summary;
static struct workqueue_struct *wq;

static void free_summary(struct work_struct *work)
{
	kfree(container_of(to_rcu_work(work), struct summary, rwork));
}

static void beat_on_this_cpu(struct work_struct *work)
{
	(void)work;
	this_cpu_inc(beats);
}

static void beat(struct work_struct *work)
{
	struct summary *next = kzalloc(sizeof(*next), GFP_KERNEL), *old;
	int cpu;

	if (next) {
		schedule_on_each_cpu(beat_on_this_cpu);
		INIT_RCU_WORK(&next->rwork, free_summary);
		for_each_possible_cpu(cpu)
			next->total += per_cpu(beats, cpu);
		old = rcu_dereference_protected(summary, true);
		next->number = old ? old->number + 1 : 1;
		rcu_assign_pointer(summary, next);
		if (old)
			queue_rcu_work(wq, &old->rwork);
	}
	queue_delayed_work(wq, to_delayed_work(work), msecs_to_jiffies(period_ms));
}

static DECLARE_DELAYED_WORK(beat_work, beat);

static void report(struct work_struct *work)
{
	struct summary *now;

	(void)work;
	rcu_read_lock();
	now = rcu_dereference(summary);
	if (now)
		pr_info("heartbeat: beat %lu, %lu on %u CPUs\n", now->number, now->total, num_online_cpus());
	rcu_read_unlock();
}

static DECLARE_WORK(report_work, report);

/* A timer must not wait, so it leaves the report to an item. */
static void report_later(struct timer_list *timer)
{
	queue_work(wq, &report_work);
	mod_timer(timer, jiffies + msecs_to_jiffies(4 * period_ms));
}

static DEFINE_TIMER(report_timer, report_later);

static int __init heartbeat_init(void)
{
	if (!period_ms)
		return -EINVAL;
	wq = alloc_workqueue("heartbeat", WQ_UNBOUND | WQ_SYSFS, 0);
	if (!wq)
		return -ENOMEM;
	queue_delayed_work(wq, &beat_work, 0);
	mod_timer(&report_timer, jiffies + msecs_to_jiffies(period_ms));
	pr_info("heartbeat: every %u ms\n", period_ms);
	return 0;
}

static void __exit heartbeat_exit(void)
{
	struct summary *last;

	timer_shutdown_sync(&report_timer);
	cancel_delayed_work_sync(&beat_work);
	cancel_work_sync(&report_work);
	rcu_barrier();
	destroy_workqueue(wq);
	last = rcu_dereference_protected(summary, true);
	pr_info("heartbeat: ended after %lu beats\n", last ? last->number : 0);
	kfree(last);
}

module_init(heartbeat_init);
module_exit(heartbeat_exit);
MODULE_DESCRIPTION("A module from start to end");
MODULE_LICENSE("Dual MIT/GPL");
