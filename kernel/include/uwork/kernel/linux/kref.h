/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Reference counts with a release function. */
#ifndef UWORK_KERNEL_LINUX_KREF_H
#define UWORK_KERNEL_LINUX_KREF_H

#include <linux/refcount.h>

struct kref {
	refcount_t refcount;
};

static inline void kref_init(struct kref *kref)
{
	refcount_set(&kref->refcount, 1);
}

static inline unsigned int kref_read(const struct kref *kref)
{
	return refcount_read(&kref->refcount);
}

static inline void kref_get(struct kref *kref)
{
	refcount_inc(&kref->refcount);
}

static inline bool kref_get_unless_zero(struct kref *kref)
{
	return refcount_inc_not_zero(&kref->refcount);
}

static inline int kref_put(struct kref *kref, void (*release)(struct kref *kref))
{
	if (!refcount_dec_and_test(&kref->refcount))
		return 0;
	release(kref);
	return 1;
}

#define KREF_INIT(n) { REFCOUNT_INIT(n) }

/* The release function is called with the lock held, and unlocks it. */
static inline int kref_put_mutex(struct kref *kref, void (*release)(struct kref *kref), struct mutex *mutex)
{
	if (!refcount_dec_and_mutex_lock(&kref->refcount, mutex))
		return 0;
	release(kref);
	return 1;
}

static inline int kref_put_lock(struct kref *kref, void (*release)(struct kref *kref), spinlock_t *lock)
{
	if (!refcount_dec_and_lock(&kref->refcount, lock))
		return 0;
	release(kref);
	return 1;
}

#endif
