// SPDX-License-Identifier: MIT OR Apache-2.0
/* Sequence counters and locks: a clock that readers copy without a lock. */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/seqlock.h>

struct snapshot {
	u64 seconds;
	u64 nanoseconds;
};

static DEFINE_SEQLOCK(clock_lock);
static DEFINE_SPINLOCK(writer_lock);
static seqcount_spinlock_t clock_seq = SEQCNT_SPINLOCK_ZERO(clock_seq, &writer_lock);
static seqcount_t plain = SEQCNT_ZERO(plain);
static struct snapshot clock;
static u64 left, right;
static DECLARE_COMPLETION(started);

static struct snapshot clock_read(void)
{
	struct snapshot copy;
	unsigned int seq;

	do {
		seq = read_seqbegin(&clock_lock);
		copy.seconds = READ_ONCE(clock.seconds);
		copy.nanoseconds = READ_ONCE(clock.nanoseconds);
	} while (read_seqretry(&clock_lock, seq));
	return copy;
}

static int reader(void *unused)
{
	int torn = 0;

	complete(&started);
	while (!kthread_should_stop()) {
		struct snapshot s = clock_read();
		unsigned int seq;
		u64 l, r;

		if (s.seconds * 1000 != s.nanoseconds)
			torn++;
		do {
			seq = read_seqcount_begin(&clock_seq);
			l = READ_ONCE(left);
			r = READ_ONCE(right);
		} while (read_seqcount_retry(&clock_seq, seq));
		if (l != r)
			torn++;
		cond_resched();
	}
	return torn;
}

static int __init seqlocks_init(void)
{
	struct task_struct *task;
	unsigned long flags;
	int i;

	task = kthread_run(reader, NULL, "clock-reader");
	if (IS_ERR(task))
		return PTR_ERR(task);
	wait_for_completion(&started);
	for (i = 0; i < 1000; i++) {
		write_seqlock_irqsave(&clock_lock, flags);
		WRITE_ONCE(clock.seconds, clock.seconds + 1);
		WRITE_ONCE(clock.nanoseconds, clock.nanoseconds + 1000);
		write_sequnlock_irqrestore(&clock_lock, flags);

		spin_lock(&writer_lock);
		write_seqcount_begin(&clock_seq);
		WRITE_ONCE(left, left + 1);
		WRITE_ONCE(right, right + 1);
		write_seqcount_end(&clock_seq);
		spin_unlock(&writer_lock);
	}
	if (kthread_stop(task))
		return -EINVAL;
	preempt_disable();
	raw_write_seqcount_begin(&plain);
	raw_write_seqcount_end(&plain);
	preempt_enable();
	read_seqlock_excl(&clock_lock);
	i = clock.seconds;
	read_sequnlock_excl(&clock_lock);
	if (i != 1000 || raw_read_seqcount(&plain) != 2)
		return -EINVAL;
	pr_info("seqlocks: passed\n");
	return 0;
}

static void __exit seqlocks_exit(void)
{
}

module_init(seqlocks_init);
module_exit(seqlocks_exit);
MODULE_LICENSE("GPL");
