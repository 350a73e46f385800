/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Atomic counters. */
#ifndef UWORK_KERNEL_LINUX_ATOMIC_H
#define UWORK_KERNEL_LINUX_ATOMIC_H

#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/*
 * Operations that the kernel documents as fully ordered are fully ordered. The _relaxed, _acquire
 * and _release variants have the order of their name.
 */
#include "../uw_kernel_atomics.h"

#define atomic_cond_read_relaxed(v, condition) smp_cond_load_relaxed(&(v)->counter, condition)
#define atomic_cond_read_acquire(v, condition) smp_cond_load_acquire(&(v)->counter, condition)

/* For variables of any type. */
#define xchg(ptr, v) __atomic_exchange_n((ptr), (v), __ATOMIC_SEQ_CST)
#define xchg_relaxed(ptr, v) __atomic_exchange_n((ptr), (v), __ATOMIC_RELAXED)
#define xchg_acquire(ptr, v) __atomic_exchange_n((ptr), (v), __ATOMIC_ACQUIRE)
#define xchg_release(ptr, v) __atomic_exchange_n((ptr), (v), __ATOMIC_RELEASE)

#define UW_CMPXCHG(ptr, old, new_value, order) \
	__extension__({ \
		__typeof__(*(ptr)) uw_old = (old); \
		__atomic_compare_exchange_n((ptr), &uw_old, (new_value), false, (order), __ATOMIC_RELAXED); \
		uw_old; \
	})
#define cmpxchg(ptr, old, new_value) UW_CMPXCHG(ptr, old, new_value, __ATOMIC_SEQ_CST)
#define cmpxchg_relaxed(ptr, old, new_value) UW_CMPXCHG(ptr, old, new_value, __ATOMIC_RELAXED)
#define cmpxchg_acquire(ptr, old, new_value) UW_CMPXCHG(ptr, old, new_value, __ATOMIC_ACQUIRE)
#define cmpxchg_release(ptr, old, new_value) UW_CMPXCHG(ptr, old, new_value, __ATOMIC_RELEASE)
#define cmpxchg_local(ptr, old, new_value) cmpxchg(ptr, old, new_value)
#define cmpxchg64(ptr, old, new_value) cmpxchg(ptr, old, new_value)

#define UW_TRY_CMPXCHG(ptr, oldp, new_value, order) \
	__atomic_compare_exchange_n((ptr), (oldp), (new_value), false, (order), __ATOMIC_RELAXED)
#define try_cmpxchg(ptr, oldp, new_value) UW_TRY_CMPXCHG(ptr, oldp, new_value, __ATOMIC_SEQ_CST)
#define try_cmpxchg_relaxed(ptr, oldp, new_value) UW_TRY_CMPXCHG(ptr, oldp, new_value, __ATOMIC_RELAXED)
#define try_cmpxchg_acquire(ptr, oldp, new_value) UW_TRY_CMPXCHG(ptr, oldp, new_value, __ATOMIC_ACQUIRE)
#define try_cmpxchg_release(ptr, oldp, new_value) UW_TRY_CMPXCHG(ptr, oldp, new_value, __ATOMIC_RELEASE)

/* Returns 1 with the lock held if the counter has become 0. */
static inline int atomic_dec_and_mutex_lock(atomic_t *v, struct mutex *lock)
{
	if (atomic_add_unless(v, -1, 1))
		return 0;
	mutex_lock(lock);
	if (atomic_dec_and_test(v))
		return 1;
	mutex_unlock(lock);
	return 0;
}

static inline int atomic_dec_and_lock(atomic_t *v, spinlock_t *lock)
{
	if (atomic_add_unless(v, -1, 1))
		return 0;
	spin_lock(lock);
	if (atomic_dec_and_test(v))
		return 1;
	spin_unlock(lock);
	return 0;
}

#define atomic_dec_and_lock_irqsave(v, lock, flags) ((flags) = 0, atomic_dec_and_lock((v), (lock)))

#endif
