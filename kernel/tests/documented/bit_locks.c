// SPDX-License-Identifier: MIT OR Apache-2.0
/* Locks in one bit of a word: spinning, sleeping, and with a wake-up of its waiters. */
#include <linux/bit_spinlock.h>
#include <linux/bitops.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/wait_bit.h>

#define LOCK_BIT	0
#define SLEEP_BIT	1
#define READY_BIT	2

static unsigned long word;
static unsigned long other;
static int counter;

static int worker(void *unused)
{
	int i;

	wait_on_bit(&word, READY_BIT, TASK_UNINTERRUPTIBLE);
	for (i = 0; i < 1000; i++) {
		bit_spin_lock(LOCK_BIT, &word);
		counter++;
		bit_spin_unlock(LOCK_BIT, &word);

		if (wait_on_bit_lock(&word, SLEEP_BIT, TASK_INTERRUPTIBLE))
			return -EINTR;
		counter++;
		clear_and_wake_up_bit(SLEEP_BIT, &word);

		while (test_and_set_bit_lock(LOCK_BIT, &other))
			cpu_relax();
		counter++;
		clear_bit_unlock(LOCK_BIT, &other);
	}
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static int __init bit_locks_init(void)
{
	struct task_struct *tasks[3];
	int i, ret = 0, interleaved;

	set_bit(READY_BIT, &word);
	for (i = 0; i < 3; i++) {
		tasks[i] = kthread_run(worker, NULL, "bits/%d", i);
		if (IS_ERR(tasks[i]))
			return PTR_ERR(tasks[i]);
	}
	clear_bit_unlock(READY_BIT, &word);
	smp_mb__after_atomic();
	wake_up_bit(&word, READY_BIT);
	for (i = 0; i < 3; i++)
		if (kthread_stop(tasks[i]) == -EINTR)
			ret++;
	interleaved = READ_ONCE(counter);
	if (word || other || interleaved > 9000)
		return -EINVAL;
	if (!bit_spin_trylock(LOCK_BIT, &word) || bit_spin_trylock(LOCK_BIT, &word) ||
	    !bit_spin_is_locked(LOCK_BIT, &word))
		return -EINVAL;
	__bit_spin_unlock(LOCK_BIT, &word);
	pr_info("bit locks: passed\n");
	return 0;
}

static void __exit bit_locks_exit(void)
{
}

module_init(bit_locks_init);
module_exit(bit_locks_exit);
MODULE_LICENSE("GPL");
