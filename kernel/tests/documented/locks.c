// SPDX-License-Identifier: MIT OR Apache-2.0
/* Locks of every kind around one counter. */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/semaphore.h>
#include <linux/spinlock.h>

#define THREADS	4
#define ROUNDS	200

static DEFINE_MUTEX(mutex);
static DECLARE_RWSEM(rwsem);
static DEFINE_SEMAPHORE(sem, 1);
static DEFINE_SPINLOCK(spin);
static DEFINE_RWLOCK(rwlock);
static DEFINE_RAW_SPINLOCK(raw);
static int by_mutex, by_rwsem, by_sem, by_spin, by_rwlock, by_raw;
static atomic_t left = ATOMIC_INIT(THREADS);
static DECLARE_COMPLETION(all_done);

static int worker(void *unused)
{
	unsigned long flags;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		mutex_lock(&mutex);
		lockdep_assert_held(&mutex);
		by_mutex++;
		mutex_unlock(&mutex);

		down_write(&rwsem);
		by_rwsem++;
		downgrade_write(&rwsem);
		up_read(&rwsem);

		down(&sem);
		by_sem++;
		up(&sem);

		spin_lock_bh(&spin);
		by_spin++;
		spin_unlock_bh(&spin);

		write_lock_irqsave(&rwlock, flags);
		by_rwlock++;
		write_unlock_irqrestore(&rwlock, flags);
		read_lock(&rwlock);
		read_unlock(&rwlock);

		raw_spin_lock(&raw);
		by_raw++;
		raw_spin_unlock(&raw);
	}
	if (atomic_dec_and_lock(&left, &spin)) {
		spin_unlock(&spin);
		complete(&all_done);
	}
	return 0;
}

static int __init locks_init(void)
{
	int i;

	for (i = 0; i < THREADS; i++) {
		struct task_struct *task = kthread_run(worker, NULL, "locks/%d", i);

		if (IS_ERR(task))
			return PTR_ERR(task);
	}
	wait_for_completion(&all_done);
	if (by_mutex != THREADS * ROUNDS || by_rwsem != THREADS * ROUNDS || by_sem != THREADS * ROUNDS ||
	    by_spin != THREADS * ROUNDS || by_rwlock != THREADS * ROUNDS || by_raw != THREADS * ROUNDS)
		return -EINVAL;
	if (!mutex_trylock(&mutex) || mutex_trylock(&mutex))
		return -EINVAL;
	mutex_unlock(&mutex);
	mutex_destroy(&mutex);
	if (!down_read_trylock(&rwsem) || down_write_trylock(&rwsem))
		return -EINVAL;
	up_read(&rwsem);
	if (down_interruptible(&sem) || down_trylock(&sem) == 0 || down_timeout(&sem, 1) != -ETIME)
		return -EINVAL;
	up(&sem);
	if (!spin_trylock(&spin) || !spin_is_locked(&spin))
		return -EINVAL;
	assert_spin_locked(&spin);
	spin_unlock(&spin);
	pr_info("locks: passed\n");
	return 0;
}

static void __exit locks_exit(void)
{
}

module_init(locks_init);
module_exit(locks_exit);
MODULE_LICENSE("GPL");
