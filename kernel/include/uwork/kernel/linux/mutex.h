/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Mutexes. */
#ifndef UWORK_KERNEL_LINUX_MUTEX_H
#define UWORK_KERNEL_LINUX_MUTEX_H

#include <linux/cleanup.h>
#include "../uw_kernel_lock.h"
#include <linux/lockdep.h>

struct mutex {
	struct uw_kernel_lock uw_lock;
};

#define __MUTEX_INITIALIZER(name) { UW_KERNEL_LOCK_INIT }
#define DEFINE_MUTEX(name) struct mutex name = __MUTEX_INITIALIZER(name)

static inline void mutex_init(struct mutex *lock)
{
	lock->uw_lock.word = 0;
}

static inline void mutex_destroy(struct mutex *lock)
{
	(void)lock;
}

static inline void mutex_lock(struct mutex *lock)
{
	uw_kernel_lock_acquire(&lock->uw_lock, UW_KERNEL_SLEEPS);
}

static inline int mutex_lock_interruptible(struct mutex *lock)
{
	mutex_lock(lock);
	return 0;
}

static inline int mutex_lock_killable(struct mutex *lock)
{
	mutex_lock(lock);
	return 0;
}

static inline int mutex_trylock(struct mutex *lock)
{
	return uw_kernel_trylock(&lock->uw_lock);
}

static inline void mutex_unlock(struct mutex *lock)
{
	uw_kernel_lock_release(&lock->uw_lock);
}

static inline bool mutex_is_locked(struct mutex *lock)
{
	return uw_kernel_is_locked(&lock->uw_lock);
}

#define mutex_lock_nested(lock, subclass) mutex_lock(lock)
#define mutex_lock_nest_lock(lock, other) mutex_lock(lock)
#define mutex_lock_interruptible_nested(lock, subclass) mutex_lock_interruptible(lock)
#define mutex_lock_killable_nested(lock, subclass) mutex_lock_killable(lock)
#define mutex_lock_io(lock) mutex_lock(lock)

#ifndef __cplusplus
DEFINE_GUARD(mutex, struct mutex *, mutex_lock(_T), mutex_unlock(_T))
DEFINE_GUARD_COND(mutex, _try, mutex_trylock(_T))
DEFINE_GUARD_COND(mutex, _intr, mutex_lock_interruptible(_T), _RET == 0)
DEFINE_GUARD_COND(mutex, _kill, mutex_lock_killable(_T), _RET == 0)
#endif

#endif
