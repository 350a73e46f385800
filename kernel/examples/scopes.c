// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Measures the cost of each affinity scope, in the kernel or in user space. A kthread on each CPU
 * queues batches of short items on one unbound workqueue and waits for each batch, once for each
 * scope. The scope is changed through the workqueue's affinity_scope attribute, as an administrator
 * would do it.
 *
 *	insmod scopes.ko batch=10		./scopes batch=10
 *
 * The init function returns -EAGAIN, because the module need not stay loaded.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#define QUEUE "scopes_wq"
#define ATTRIBUTE "/sys/bus/workqueue/devices/" QUEUE "/affinity_scope"

static unsigned int batch = 1;
module_param(batch, uint, 0444);
MODULE_PARM_DESC(batch, "items that a thread queues before it waits for them");

static unsigned int items = 20000;
module_param(items, uint, 0444);
MODULE_PARM_DESC(items, "items of each thread");

static const char *const scopes[] = { "cpu", "smt", "cache_shard", "cache", "numa", "system" };

struct job {
	struct work_struct work;
	struct producer *producer;
};

struct producer {
	struct task_struct *task;
	struct completion batch_done;
	atomic_t left;
	struct job *jobs;
	u64 *enqueue_ns;
};

static struct workqueue_struct *queue;
static struct producer *producers;
static DECLARE_COMPLETION(go);
static DECLARE_COMPLETION(all_done);
static atomic_t running;

static void run_job(struct work_struct *work)
{
	struct producer *producer = container_of(work, struct job, work)->producer;

	if (atomic_dec_and_test(&producer->left))
		complete(&producer->batch_done);
}

static int produce(void *data)
{
	struct producer *producer = data;
	unsigned int sent = 0;

	wait_for_completion(&go);
	while (sent < items && !kthread_should_stop()) {
		unsigned int count = min(batch, items - sent), i;

		reinit_completion(&producer->batch_done);
		atomic_set(&producer->left, count);
		for (i = 0; i < count; i++) {
			ktime_t begin = ktime_get();

			WARN_ON_ONCE(!queue_work(queue, &producer->jobs[i].work));
			producer->enqueue_ns[sent + i] = ktime_to_ns(ktime_sub(ktime_get(), begin));
		}
		wait_for_completion(&producer->batch_done);
		sent += count;
	}
	if (atomic_dec_and_test(&running))
		complete(&all_done);

	/* kthread_stop() must find the thread alive. */
	set_current_state(TASK_INTERRUPTIBLE);
	while (!kthread_should_stop()) {
		schedule();
		set_current_state(TASK_INTERRUPTIBLE);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

static int __init choose_scope(const char *scope)
{
	struct file *file = filp_open(ATTRIBUTE, O_RDWR, 0);
	ssize_t length;
	char now[64];
	loff_t at = 0;

	if (IS_ERR(file))
		return PTR_ERR(file);
	length = kernel_write(file, scope, strlen(scope), &at);
	if (length < 0)
		goto out;
	at = 0;
	length = kernel_read(file, now, sizeof(now) - 1, &at);
	if (length < 0)
		goto out;
	now[length] = '\0';
	if (!sysfs_streq(now, scope))
		length = -EIO;
out:
	filp_close(file, NULL);
	return length < 0 ? (int)length : 0;
}

static int by_value(const void *a, const void *b)
{
	u64 first = *(const u64 *)a, second = *(const u64 *)b;

	return first < second ? -1 : first > second;
}

static void free_producers(unsigned int count)
{
	while (count-- > 0) {
		kvfree(producers[count].enqueue_ns);
		kfree(producers[count].jobs);
	}
	kfree(producers);
}

static int __init make_producers(void)
{
	unsigned int count = num_online_cpus(), i, j;

	producers = kcalloc(count, sizeof(*producers), GFP_KERNEL);
	if (!producers)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		struct producer *producer = &producers[i];

		init_completion(&producer->batch_done);
		producer->jobs = kcalloc(batch, sizeof(*producer->jobs), GFP_KERNEL);
		producer->enqueue_ns = kvmalloc_array(items, sizeof(u64), GFP_KERNEL);
		if (!producer->jobs || !producer->enqueue_ns) {
			free_producers(i + 1);
			return -ENOMEM;
		}
		for (j = 0; j < batch; j++) {
			INIT_WORK(&producer->jobs[j].work, run_job);
			producer->jobs[j].producer = producer;
		}
	}
	return 0;
}

/* Starts one on each CPU. Returns their number, or a negative errno value. */
static int __init start_producers(void)
{
	int count = 0, cpu;

	for_each_online_cpu(cpu) {
		struct task_struct *task = kthread_create(produce, &producers[count], "scopes/%d", cpu);

		if (IS_ERR(task)) {
			complete_all(&go);
			while (count-- > 0)
				kthread_stop(producers[count].task);
			return PTR_ERR(task);
		}
		kthread_bind(task, cpu);
		producers[count++].task = task;
		wake_up_process(task);
	}
	return count;
}

static void __init print_result(const char *scope, u64 *ns, unsigned int count, s64 elapsed_us)
{
	u64 total = (u64)count * items;
	unsigned int i;

	for (i = 0; i < count; i++)
		memcpy(ns + (size_t)i * items, producers[i].enqueue_ns, items * sizeof(*ns));
	sort(ns, total, sizeof(*ns), by_value, NULL);
	pr_info("%-12s %10llu items/s  enqueue p50 %llu p90 %llu p99 %llu ns\n", scope,
		div64_u64(total * USEC_PER_SEC, max_t(u64, elapsed_us, 1)), ns[total / 2], ns[total * 9 / 10],
		ns[total * 99 / 100]);
}

static int __init measure(const char *scope)
{
	unsigned int count = num_online_cpus(), i;
	ktime_t begin, end;
	u64 *ns;
	int ret;

	ret = choose_scope(scope);
	if (ret)
		return ret;
	ns = kvmalloc_array((size_t)count * items, sizeof(*ns), GFP_KERNEL);
	if (!ns)
		return -ENOMEM;
	reinit_completion(&go);
	reinit_completion(&all_done);
	atomic_set(&running, count);
	ret = start_producers();
	if (ret < 0)
		goto out;
	begin = ktime_get();
	complete_all(&go);
	wait_for_completion(&all_done);
	flush_workqueue(queue);
	end = ktime_get();
	for (i = 0; i < count; i++)
		kthread_stop(producers[i].task);
	print_result(scope, ns, count, ktime_us_delta(end, begin));
	ret = 0;
out:
	kvfree(ns);
	return ret;
}

static int __init scopes_init(void)
{
	unsigned int i;
	int ret;

	if (!batch || !items)
		return -EINVAL;
	queue = alloc_workqueue(QUEUE, WQ_UNBOUND | WQ_SYSFS, 0);
	if (!queue)
		return -ENOMEM;
	ret = make_producers();
	if (ret)
		goto out;
	pr_info("%u threads, %u items each, %u outstanding\n", num_online_cpus(), items, batch);
	for (i = 0; i < ARRAY_SIZE(scopes) && !ret; i++)
		ret = measure(scopes[i]);
	if (ret)
		pr_err("%s: %d\n", scopes[i - 1], ret);
	free_producers(num_online_cpus());
out:
	destroy_workqueue(queue);
	return ret ? ret : -EAGAIN;
}

module_init(scopes_init);
MODULE_DESCRIPTION("What each affinity scope costs a workqueue");
MODULE_LICENSE("Dual MIT/GPL");
