/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Mutexes like those of linux/mutex.h: the priority of a waiter is not inherited. */
#ifndef UWORK_KERNEL_LINUX_RTMUTEX_H
#define UWORK_KERNEL_LINUX_RTMUTEX_H

#include <linux/mutex.h>

struct rt_mutex {
	struct mutex uw_mutex;
};

#define __RT_MUTEX_INITIALIZER(name) { __MUTEX_INITIALIZER((name).uw_mutex) }
#define DEFINE_RT_MUTEX(name) struct rt_mutex name = __RT_MUTEX_INITIALIZER(name)

static inline void rt_mutex_init(struct rt_mutex *lock)
{
	mutex_init(&lock->uw_mutex);
}

static inline void rt_mutex_destroy(struct rt_mutex *lock)
{
	mutex_destroy(&lock->uw_mutex);
}

static inline void rt_mutex_lock(struct rt_mutex *lock)
{
	mutex_lock(&lock->uw_mutex);
}

static inline int rt_mutex_lock_interruptible(struct rt_mutex *lock)
{
	return mutex_lock_interruptible(&lock->uw_mutex);
}

static inline int rt_mutex_lock_killable(struct rt_mutex *lock)
{
	return mutex_lock_killable(&lock->uw_mutex);
}

static inline int rt_mutex_trylock(struct rt_mutex *lock)
{
	return mutex_trylock(&lock->uw_mutex);
}

static inline void rt_mutex_unlock(struct rt_mutex *lock)
{
	mutex_unlock(&lock->uw_mutex);
}

static inline bool rt_mutex_is_locked(struct rt_mutex *lock)
{
	return mutex_is_locked(&lock->uw_mutex);
}

#define rt_mutex_lock_nested(lock, subclass) rt_mutex_lock(lock)
#define rt_mutex_base_is_locked(lock) mutex_is_locked(&(lock)->uw_mutex)

#endif
