/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counting semaphores. */
#ifndef UWORK_KERNEL_LINUX_SEMAPHORE_H
#define UWORK_KERNEL_LINUX_SEMAPHORE_H

#include <linux/wait.h>

struct semaphore {
	spinlock_t lock;
	unsigned int count;
	struct wait_queue_head waiters;
};

#define __SEMAPHORE_INITIALIZER(name, n) \
	{ __SPIN_LOCK_UNLOCKED(name), (n), __WAIT_QUEUE_HEAD_INITIALIZER((name).waiters) }
#define DEFINE_SEMAPHORE(name, n) struct semaphore name = __SEMAPHORE_INITIALIZER(name, n)

static inline void sema_init(struct semaphore *sem, int count)
{
	spin_lock_init(&sem->lock);
	sem->count = (unsigned int)count;
	init_waitqueue_head(&sem->waiters);
}

/* Returns 0 if the semaphore was taken. */
static inline int down_trylock(struct semaphore *sem)
{
	int had;

	spin_lock(&sem->lock);
	had = sem->count > 0;
	sem->count -= (unsigned int)had;
	spin_unlock(&sem->lock);
	return !had;
}

static inline void down(struct semaphore *sem)
{
	wait_event_exclusive(sem->waiters, !down_trylock(sem));
}

static inline int down_interruptible(struct semaphore *sem)
{
	down(sem);
	return 0;
}

static inline void up(struct semaphore *sem)
{
	spin_lock(&sem->lock);
	sem->count++;
	spin_unlock(&sem->lock);
	wake_up(&sem->waiters);
}

#define down_killable(sem) down_interruptible(sem)

/* 0 or -ETIME. */
static inline int down_timeout(struct semaphore *sem, long timeout)
{
	return wait_event_timeout(sem->waiters, !down_trylock(sem), timeout) > 0 ? 0 : -ETIME;
}

#endif
