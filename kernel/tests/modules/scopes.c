// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads on each CPU that queue and wait, for each affinity scope, set through the attribute file.
 */
#define pr_fmt(fmt) "scopes: " fmt

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/workqueue.h>

#define WQ_NAME "scopes_wq"
#define ITEMS 200

static const char * const scopes[] = { "cpu", "smt", "cache_shard", "cache", "numa", "system" };

struct item {
	struct work_struct work;
	struct completion done;
};

struct thread {
	struct task_struct *task;
	struct completion ended;
	u64 *latency;
};

static struct workqueue_struct *wq;
static DECLARE_COMPLETION(start);

static void item_fn(struct work_struct *work)
{
	complete(&container_of(work, struct item, work)->done);
}

static int thread_fn(void *data)
{
	struct thread *thread = data;
	struct item item;
	int i;

	INIT_WORK_ONSTACK(&item.work, item_fn);
	init_completion(&item.done);
	wait_for_completion(&start);
	for (i = 0; i < ITEMS; i++) {
		u64 begin = ktime_get_ns();

		reinit_completion(&item.done);
		queue_work(wq, &item.work);
		wait_for_completion(&item.done);
		thread->latency[i] = ktime_get_ns() - begin;
	}
	/* The completion comes before the end of the item. */
	flush_work(&item.work);
	destroy_work_on_stack(&item.work);
	complete(&thread->ended);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ / 100);
	return 0;
}

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static int set_scope(const char *scope)
{
	struct file *file = filp_open("/sys/bus/workqueue/devices/" WQ_NAME "/affinity_scope", O_WRONLY, 0);
	ssize_t written;

	if (IS_ERR(file))
		return PTR_ERR(file);
	written = kernel_write(file, scope, strlen(scope), &file->f_pos);
	filp_close(file, NULL);
	return written < 0 ? (int)written : 0;
}

static int run_scope(const char *scope)
{
	struct thread *threads = kcalloc(nr_cpu_ids, sizeof(*threads), GFP_KERNEL);
	u64 *latency = kvmalloc_array(nr_cpu_ids, ITEMS * sizeof(u64), GFP_KERNEL);
	int cpu, error = set_scope(scope);
	unsigned int n = 0;

	if (!threads || !latency)
		error = -ENOMEM;
	if (error)
		goto out;
	reinit_completion(&start);
	for_each_online_cpu(cpu) {
		struct thread *thread = &threads[n];

		thread->latency = latency + ITEMS * n++;
		init_completion(&thread->ended);
		thread->task = kthread_run_on_cpu(thread_fn, thread, cpu, "scopes/%u");
		if (IS_ERR(thread->task)) {
			error = PTR_ERR(thread->task);
			n--;
			break;
		}
	}
	complete_all(&start);
	for (cpu = 0; cpu < (int)n; cpu++) {
		wait_for_completion(&threads[cpu].ended);
		kthread_stop(threads[cpu].task);
	}
	if (n > 0) {
		sort(latency, n * ITEMS, sizeof(u64), compare, NULL);
		pr_info("%-12s p50 %7llu ns  p99 %7llu ns\n", scope, latency[n * ITEMS / 2], latency[n * ITEMS * 99 / 100]);
		if (!latency[0])
			error = -ERANGE;
	}
out:
	kvfree(latency);
	kfree(threads);
	return error;
}

static int __init scopes_init(void)
{
	int error = 0;
	size_t i;

	wq = alloc_workqueue(WQ_NAME, WQ_UNBOUND | WQ_SYSFS, 0);
	if (!wq)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(scopes) && !error; i++)
		error = run_scope(scopes[i]);
	destroy_workqueue(wq);
	return error;
}

static void __exit scopes_exit(void) { }

module_init(scopes_init);
module_exit(scopes_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Latency for each affinity scope");
