// SPDX-License-Identifier: MIT OR Apache-2.0
/* The functions that the other contract tests do not call: they exist, and return. */
#include <stddef.h>

/* As C libraries and sources that know these functions declare them. */
extern size_t strlcat(char *, const char *, size_t);
extern size_t strlcpy(char *, const char *, size_t);

#include <linux/cpumask.h>
#include <linux/rcupdate.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "contract.h"

static atomic_t runs;

static void count(struct work_struct *work)
{
	(void)work;
	atomic_inc(&runs);
}

static DECLARE_WORK(declared, count);
static DECLARE_DELAYED_WORK(declared_delayed, count);
static DECLARE_DEFERRABLE_WORK(declared_deferrable, count);

/* An item runs on each of the system queues. */
static void system_queues(void)
{
	struct workqueue_struct *all[] = {
		system_percpu_wq, system_highpri_wq, system_long_wq, system_dfl_wq, system_dfl_long_wq,
		system_freezable_wq, system_power_efficient_wq, system_freezable_power_efficient_wq, system_bh_wq,
		system_bh_highpri_wq, system_wq, system_unbound_wq,
	};
	struct work_struct work;
	size_t i;

	INIT_WORK_ONSTACK(&work, count);
	for (i = 0; i < ARRAY_SIZE(all); i++) {
		atomic_set(&runs, 0);
		CHECK(queue_work(all[i], &work));
		flush_work(&work);
		CHECK(atomic_read(&runs) == 1);
	}
	destroy_work_on_stack(&work);

	atomic_set(&runs, 0);
	CHECK(schedule_work(&declared));
	flush_work(&declared);
	CHECK(schedule_work_on((int)cpumask_first(cpu_online_mask), &declared));
	flush_work(&declared);
	CHECK(schedule_delayed_work(&declared_delayed, 86400 * HZ));
	CHECK(flush_delayed_work(&declared_delayed));
	CHECK(schedule_delayed_work_on((int)cpumask_first(cpu_online_mask), &declared_deferrable, 86400 * HZ));
	CHECK(delayed_work_pending(&declared_deferrable));
	CHECK(flush_delayed_work(&declared_deferrable));
	CHECK(atomic_read(&runs) == 4);
}

static atomic_t cpus_seen;

static void see_cpu(struct work_struct *work)
{
	(void)work;
	CHECK(cpumask_test_cpu(smp_processor_id(), cpu_online_mask));
	atomic_inc(&cpus_seen);
}

static long twice(void *arg)
{
	return 2 * *(int *)arg;
}

static void on_cpus(void)
{
	struct execute_work ew;
	int number = 21;

	CHECK(schedule_on_each_cpu(see_cpu) == 0);
	CHECK(atomic_read(&cpus_seen) == (int)num_online_cpus());
	CHECK(work_on_cpu((int)cpumask_first(cpu_online_mask), twice, &number) == 42);
	atomic_set(&runs, 0);
	CHECK(execute_in_process_context(count, &ew) == 0);
	CHECK(atomic_read(&runs) == 1);
}

static void attributes(void)
{
	struct workqueue_struct *wq = alloc_workqueue("contract-%d", WQ_UNBOUND | WQ_SYSFS, 4, 7);
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();
	struct work_struct work;

	BUG_ON(!wq || !attrs);
	attrs->nice = 1;
	cpumask_clear(attrs->cpumask);
	cpumask_set_cpu(cpumask_first(cpu_online_mask), attrs->cpumask);
	attrs->affn_scope = WQ_AFFN_NUMA;
	attrs->affn_strict = true;
	CHECK(apply_workqueue_attrs(wq, attrs) == 0);
	free_workqueue_attrs(attrs);
	workqueue_set_max_active(wq, 2);
	workqueue_set_min_active(wq, 1);
	CHECK(!workqueue_congested(WORK_CPU_UNBOUND, wq));
	CHECK(!workqueue_congested((int)cpumask_first(cpu_online_mask), wq));
	INIT_WORK_ONSTACK(&work, count);
	atomic_set(&runs, 0);
	CHECK(queue_work_node(0, wq, &work));
	drain_workqueue(wq);
	CHECK(queue_work_on(WORK_CPU_UNBOUND, wq, &work));
	flush_workqueue(wq);
	CHECK(atomic_read(&runs) == 2);
	show_one_workqueue(wq);
	destroy_workqueue(wq);
}

static void old_names(void)
{
	struct workqueue_struct *all[] = { create_workqueue("contract-old"), create_singlethread_workqueue("contract-single"),
					   create_freezable_workqueue("contract-freezable"),
					   alloc_workqueue("contract-bh", WQ_BH, 0),
					   alloc_workqueue("contract-saving", WQ_POWER_EFFICIENT | WQ_PERCPU, 0),
					   /* a second queue of the same name */
					   alloc_workqueue("contract-old", WQ_UNBOUND | WQ_CPU_INTENSIVE, 0) };
	struct work_struct work;
	size_t i;

	INIT_WORK_ONSTACK(&work, count);
	atomic_set(&runs, 0);
	for (i = 0; i < ARRAY_SIZE(all); i++) {
		BUG_ON(!all[i]);
		CHECK(queue_work(all[i], &work));
		flush_work(&work);
		destroy_workqueue(all[i]);
	}
	CHECK(atomic_read(&runs) == (int)ARRAY_SIZE(all));
}

/* An item that is queued during a freeze waits for the thaw. */
static void freezing(void)
{
	struct workqueue_struct *wq = alloc_workqueue("contract-frozen", WQ_UNBOUND | WQ_FREEZABLE, 0);
	struct work_struct work;

	BUG_ON(!wq);
	INIT_WORK_ONSTACK(&work, count);
	atomic_set(&runs, 0);
	freeze_workqueues_begin();
	while (freeze_workqueues_busy())
		cond_resched();
	CHECK(queue_work(wq, &work));
	CHECK(work_pending(&work));
	CHECK(atomic_read(&runs) == 0);
	thaw_workqueues();
	flush_work(&work);
	CHECK(atomic_read(&runs) == 1);
	destroy_workqueue(wq);
}

static void describe(struct work_struct *work)
{
	CHECK(current_work() == work);
	CHECK(!current_is_workqueue_rescuer());
	set_worker_desc("item %d", 7);
	print_worker_info(KERN_INFO, current);
	wq_watchdog_touch(smp_processor_id());
}

static void inside(void)
{
	struct work_struct work;

	INIT_WORK_ONSTACK(&work, describe);
	CHECK(queue_work(system_dfl_wq, &work));
	flush_work(&work);
	CHECK(!current_work());
}

static atomic_t worker_runs;

static void count_on_worker(struct kthread_work *work)
{
	(void)work;
	atomic_inc(&worker_runs);
}

static DEFINE_KTHREAD_WORK(kthread_declared, count_on_worker);

static void workers(void)
{
	struct kthread_worker *worker = kthread_create_worker_on_cpu((int)cpumask_first(cpu_online_mask), 0, "contract/%u",
								     cpumask_first(cpu_online_mask));
	struct kthread_delayed_work delayed;
	struct kthread_worker own;
	struct task_struct *thread;

	BUG_ON(IS_ERR(worker));
	kthread_init_delayed_work(&delayed, count_on_worker);
	CHECK(kthread_queue_work(worker, &kthread_declared));
	kthread_flush_work(&kthread_declared);
	CHECK(kthread_queue_delayed_work(worker, &delayed, 86400 * HZ));
	CHECK(kthread_mod_delayed_work(worker, &delayed, 86400 * HZ));
	CHECK(kthread_cancel_delayed_work_sync(&delayed));
	CHECK(!kthread_mod_delayed_work(worker, &delayed, 0));
	kthread_flush_worker(worker);
	CHECK(!kthread_cancel_work_sync(&kthread_declared));
	kthread_destroy_worker(worker);

	kthread_init_worker(&own);
	thread = kthread_run(kthread_worker_fn, &own, "contract-own");
	BUG_ON(IS_ERR(thread));
	CHECK(kthread_queue_work(&own, &kthread_declared));
	kthread_flush_work(&kthread_declared);
	kthread_stop(thread);
	CHECK(atomic_read(&worker_runs) == 3);
}

struct replaced {
	struct rcu_head head;
	atomic_t *freed;
};

static void free_replaced(struct rcu_head *head)
{
	struct replaced *replaced = container_of(head, struct replaced, head);

	atomic_inc(replaced->freed);
	kfree(replaced);
}

static void grace_periods(void)
{
	struct replaced *replaced = kzalloc(sizeof(*replaced), GFP_KERNEL), *plain = kzalloc(sizeof(*plain), GFP_KERNEL);
	atomic_t freed = ATOMIC_INIT(0);

	BUG_ON(!replaced || !plain);
	replaced->freed = &freed;
	rcu_read_lock();
	call_rcu(&replaced->head, free_replaced);
	CHECK(atomic_read(&freed) == 0);
	rcu_read_unlock();
	kfree_rcu(plain, head);
	rcu_barrier();
	CHECK(atomic_read(&freed) == 1);
	synchronize_rcu();
}

static void bounded_texts(void)
{
	const char *texts[] = { "abc", "defgh" }, **next = texts;
	char text[8];

	CHECK(strlcpy(text, *next++, sizeof(text)) == 3 && next == texts + 1);
	CHECK(strlcat(text, *next++, sizeof(text)) == 8 && next == texts + 2);
	CHECK(strcmp(text, "abcdefg") == 0);
}

static void surface(void)
{
	system_queues();
	on_cpus();
	attributes();
	old_names();
	freezing();
	inside();
	workers();
	grace_periods();
	bounded_texts();
	show_all_workqueues();
	show_freezable_workqueues();
}

CONTRACT(surface);
