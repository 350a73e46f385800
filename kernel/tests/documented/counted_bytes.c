// SPDX-License-Identifier: MIT OR Apache-2.0
/* A pair of numbers under a sequence counter, and statistics of 64 bits. */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/seqlock.h>
#include <linux/u64_stats_sync.h>

static DEFINE_SEQLOCK(pair_lock);
static unsigned long low, high;
static struct { u64_stats_t bytes; struct u64_stats_sync syncp; } stats;
static seqcount_mutex_t mutex_count;
static DEFINE_MUTEX(owner);

static int read_pairs(void *torn)
{
	while (!kthread_should_stop()) {
		unsigned long a, b;
		unsigned int seq;

		do {
			seq = read_seqbegin(&pair_lock);
			a = low;
			b = high;
		} while (read_seqretry(&pair_lock, seq));
		if (a + 1 != b && (a || b))
			(*(int *)torn)++;
		cond_resched();
	}
	return 0;
}

static int __init counted_bytes_init(void)
{
	struct task_struct *task;
	unsigned long i, flags;
	unsigned int seq;
	int torn = 0;

	seqcount_mutex_init(&mutex_count, &owner);
	u64_stats_init(&stats.syncp);
	task = kthread_run(read_pairs, &torn, "pairs");
	if (IS_ERR(task))
		return PTR_ERR(task);
	for (i = 1; i < 20000; i++) {
		write_seqlock_irqsave(&pair_lock, flags);
		low = i;
		high = i + 1;
		write_sequnlock_irqrestore(&pair_lock, flags);
		u64_stats_update_begin(&stats.syncp);
		u64_stats_add(&stats.bytes, 10);
		u64_stats_update_end(&stats.syncp);
	}
	kthread_stop(task);
	mutex_lock(&owner);
	write_seqcount_begin(&mutex_count);
	low = 0;
	write_seqcount_end(&mutex_count);
	mutex_unlock(&owner);
	seq = read_seqcount_begin(&mutex_count);
	if (torn || u64_stats_read(&stats.bytes) != 10 * 19999 || read_seqcount_retry(&mutex_count, seq)) {
		pr_err("counted_bytes: failed, %d torn\n", torn);
		return -EINVAL;
	}
	pr_info("counted_bytes: passed\n");
	return 0;
}

static void __exit counted_bytes_exit(void) {}
module_init(counted_bytes_init);
module_exit(counted_bytes_exit);
MODULE_LICENSE("GPL");
