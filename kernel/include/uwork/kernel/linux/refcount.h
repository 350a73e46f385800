/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Reference counts. */
#ifndef UWORK_KERNEL_LINUX_REFCOUNT_H
#define UWORK_KERNEL_LINUX_REFCOUNT_H

#include <linux/atomic.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

#define REFCOUNT_INIT(n) { ATOMIC_INIT(n) }

static inline void refcount_set(refcount_t *r, int n)
{
	atomic_set(&r->refs, n);
}

static inline unsigned int refcount_read(const refcount_t *r)
{
	return (unsigned int)atomic_read(&r->refs);
}

static inline void refcount_inc(refcount_t *r)
{
	atomic_inc(&r->refs);
}

static inline bool refcount_inc_not_zero(refcount_t *r)
{
	return atomic_inc_not_zero(&r->refs);
}

static inline bool refcount_dec_and_test(refcount_t *r)
{
	return atomic_dec_and_test(&r->refs);
}

static inline void refcount_dec(refcount_t *r)
{
	atomic_dec(&r->refs);
}

static inline void refcount_add(int i, refcount_t *r)
{
	atomic_add(i, &r->refs);
}

static inline bool refcount_sub_and_test(int i, refcount_t *r)
{
	return atomic_sub_and_test(i, &r->refs);
}

static inline bool refcount_dec_not_one(refcount_t *r)
{
	int refs = atomic_read(&r->refs);

	while (refs != 1 && !atomic_try_cmpxchg(&r->refs, &refs, refs - 1))
		;
	return refs != 1;
}

static inline bool refcount_dec_if_one(refcount_t *r)
{
	int one = 1;

	return atomic_try_cmpxchg(&r->refs, &one, 0);
}

static inline bool refcount_add_not_zero(int i, refcount_t *r)
{
	return atomic_add_unless(&r->refs, i, 0);
}

/* Returns true with the lock held if that was the last reference. */
static inline bool refcount_dec_and_lock(refcount_t *r, spinlock_t *lock)
{
	if (refcount_dec_not_one(r))
		return false;
	spin_lock(lock);
	if (refcount_dec_and_test(r))
		return true;
	spin_unlock(lock);
	return false;
}

static inline bool refcount_dec_and_mutex_lock(refcount_t *r, struct mutex *lock)
{
	if (refcount_dec_not_one(r))
		return false;
	mutex_lock(lock);
	if (refcount_dec_and_test(r))
		return true;
	mutex_unlock(lock);
	return false;
}

#define refcount_dec_and_lock_irqsave(r, lock, flags) (*(flags) = 0, refcount_dec_and_lock((r), (lock)))
#define refcount_set_release(r, n) atomic_set_release(&(r)->refs, (n))

#endif
