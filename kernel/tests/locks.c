// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Locks: mutual exclusion, no starvation, and no report about a spin lock in a timer or a BH item.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#include <uwork.h>
#include "check.h"

#define THREADS 6
#define ROUNDS 3000

static DEFINE_MUTEX(mutex);
static DEFINE_SPINLOCK(spinlock);
static DEFINE_RWLOCK(rwlock);
static DECLARE_RWSEM(rwsem);

/* Each counter is guarded by its lock alone. */
static struct {
	unsigned long by_mutex, by_spinlock, by_rwlock, by_rwsem;
} counts;

static atomic_t reads_torn, reports;

/* A thread that is stopped before it has started never runs its function. */
static DECLARE_COMPLETION(started);

/*
 * Sometimes a holder sleeps for so long that the waiters become starved, and newcomers may no
 * longer overtake them.
 */
static void hold(int round)
{
	if (round % 1000 == 999)
		usleep_range(1500, 1600);
}

static int all_locks(void *arg)
{
	int round;

	(void)arg;
	complete(&started);
	for (round = 0; round < ROUNDS; round++) {
		mutex_lock(&mutex);
		counts.by_mutex++;
		hold(round);
		mutex_unlock(&mutex);

		spin_lock(&spinlock);
		counts.by_spinlock++;
		hold(round + 250);
		spin_unlock(&spinlock);

		write_lock(&rwlock);
		counts.by_rwlock += 2;
		write_unlock(&rwlock);
		read_lock(&rwlock);
		if (counts.by_rwlock % 2)
			atomic_inc(&reads_torn);
		read_unlock(&rwlock);

		down_write(&rwsem);
		counts.by_rwsem++;
		hold(round + 500);
		counts.by_rwsem++;
		downgrade_write(&rwsem);
		if (counts.by_rwsem % 2)
			atomic_inc(&reads_torn);
		up_read(&rwsem);
		down_read(&rwsem);
		if (counts.by_rwsem % 2)
			atomic_inc(&reads_torn);
		up_read(&rwsem);
	}
	return 0;
}

static struct task_struct *start(int (*function)(void *arg), void *arg, const char *name, int number)
{
	struct task_struct *thread = kthread_create(function, arg, "%s/%d", name, number);

	get_task_struct(thread);
	wake_up_process(thread);
	wait_for_completion(&started);
	return thread;
}

static void wait_for(struct task_struct *thread)
{
	CHECK(kthread_stop(thread) == 0);
	put_task_struct(thread);
}

static void run_on_threads(int (*function)(void *arg), void *arg, int count)
{
	struct task_struct *threads[THREADS];
	int i;

	for (i = 0; i < count; i++)
		threads[i] = start(function, arg, "locks", i);
	for (i = 0; i < count; i++)
		wait_for(threads[i]);
}

static void exclusion(void)
{
	run_on_threads(all_locks, NULL, THREADS);
	CHECK(counts.by_mutex == THREADS * ROUNDS && counts.by_spinlock == THREADS * ROUNDS);
	CHECK(counts.by_rwlock == 2 * THREADS * ROUNDS && counts.by_rwsem == 2 * THREADS * ROUNDS);
	CHECK(atomic_read(&reads_torn) == 0);
	CHECK(!mutex_is_locked(&mutex) && !spin_is_locked(&spinlock));
	CHECK(mutex_trylock(&mutex) && !mutex_trylock(&mutex));
	mutex_unlock(&mutex);
	CHECK(down_write_trylock(&rwsem) && !down_read_trylock(&rwsem));
	up_write(&rwsem);
	CHECK(down_read_trylock(&rwsem) && down_read_trylock(&rwsem) && !down_write_trylock(&rwsem));
	up_read(&rwsem);
	up_read(&rwsem);
}

/*
 * Several threads that hold the lock in turn, so that it is never free, until the other thread has
 * had it often enough.
 */
static atomic_t turns_left;

static int read_always(void *arg)
{
	(void)arg;
	complete(&started);
	while (atomic_read(&turns_left) > 0) {
		down_read(&rwsem);
		usleep_range(300, 400);
		up_read(&rwsem);
		read_lock(&rwlock);
		usleep_range(300, 400);
		read_unlock(&rwlock);
	}
	return 0;
}

static int lock_always(void *arg)
{
	(void)arg;
	complete(&started);
	while (atomic_read(&turns_left) > 0) {
		mutex_lock(&mutex);
		udelay(200);
		mutex_unlock(&mutex);
		spin_lock(&spinlock);
		udelay(200);
		spin_unlock(&spinlock);
	}
	return 0;
}

static int write_sometimes(void *arg)
{
	(void)arg;
	complete(&started);
	while (atomic_dec_return(&turns_left) > 0) {
		down_write(&rwsem);
		up_write(&rwsem);
		write_lock(&rwlock);
		write_unlock(&rwlock);
	}
	return 0;
}

static int lock_sometimes(void *arg)
{
	(void)arg;
	complete(&started);
	while (atomic_dec_return(&turns_left) > 0) {
		mutex_lock(&mutex);
		mutex_unlock(&mutex);
		spin_lock(&spinlock);
		spin_unlock(&spinlock);
	}
	return 0;
}

/* Ends only if every thread gets the lock. */
static void turns(int (*always)(void *arg), int (*sometimes)(void *arg))
{
	struct task_struct *other;

	atomic_set(&turns_left, 20);
	other = start(sometimes, NULL, "other", 0);
	run_on_threads(always, NULL, 4);
	wait_for(other);
}

struct ticking {
	struct timer_list timer;
	struct completion done;
	unsigned long ticks;
};

static void tick(struct timer_list *timer)
{
	struct ticking *ticking = from_timer(ticking, timer, timer);

	spin_lock(&spinlock);
	counts.by_spinlock++;
	spin_unlock(&spinlock);
	if (++ticking->ticks == 50)
		complete(&ticking->done);
	else
		mod_timer(timer, jiffies + 1);
}

static int hold_always(void *arg)
{
	complete(&started);
	while (!completion_done((struct completion *)arg)) {
		spin_lock_bh(&spinlock);
		udelay(2000);
		spin_unlock_bh(&spinlock);
	}
	return 0;
}

static void report(const char *text)
{
	pr_err("said: %s\n", text);
	/* The test ignores all other reports, for example of the watchdog on a busy machine. */
	if (strstr(text, "waits, which it must not"))
		atomic_inc(&reports);
}

static void in_timers(void)
{
	static struct ticking ticking;

	uw_set_reporter(report);
	init_completion(&ticking.done);
	timer_setup(&ticking.timer, tick, 0);
	counts.by_spinlock = 0;
	mod_timer(&ticking.timer, jiffies + 1);
	run_on_threads(hold_always, &ticking.done, 2);
	wait_for_completion(&ticking.done);
	timer_delete_sync(&ticking.timer);
	CHECK(counts.by_spinlock == 50 && atomic_read(&reports) == 0);
}

static int __init locks_init(void)
{
	exclusion();
	turns(read_always, write_sometimes);
	turns(lock_always, lock_sometimes);
	in_timers();
	return checked();
}

module_init(locks_init)
MODULE_LICENSE("Dual MIT/GPL");
