/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A count beside its lock. */
#ifndef UWORK_KERNEL_LINUX_LOCKREF_H
#define UWORK_KERNEL_LINUX_LOCKREF_H

#include <linux/spinlock.h>

struct lockref {
	spinlock_t lock;
	int count;
};

#define LOCKREF_INIT(n) { __SPIN_LOCK_UNLOCKED(lock), (n) }

static inline void lockref_init(struct lockref *lockref)
{
	spin_lock_init(&lockref->lock);
	lockref->count = 1;
}

static inline void lockref_get(struct lockref *lockref)
{
	spin_lock(&lockref->lock);
	lockref->count++;
	spin_unlock(&lockref->lock);
}

/* Adds `change` if the count is above `above`. Returns the new count; -1 if it is unchanged. */
static inline int uw_lockref_change(struct lockref *lockref, int above, int change)
{
	int count = -1;

	spin_lock(&lockref->lock);
	if (lockref->count > above)
		count = lockref->count += change;
	spin_unlock(&lockref->lock);
	return count;
}

static inline bool lockref_get_not_zero(struct lockref *lockref)
{
	return uw_lockref_change(lockref, 0, 1) >= 0;
}

static inline bool lockref_get_not_dead(struct lockref *lockref)
{
	return uw_lockref_change(lockref, -1, 1) >= 0;
}

/* The new count; -1 if there was none, or it is dead. */
static inline int lockref_put_return(struct lockref *lockref)
{
	return uw_lockref_change(lockref, 0, -1);
}

static inline bool lockref_put_not_zero(struct lockref *lockref)
{
	return uw_lockref_change(lockref, 1, -1) >= 0;
}

/* False, with the lock held, if the count is 1 or less. */
static inline bool lockref_put_or_lock(struct lockref *lockref)
{
	spin_lock(&lockref->lock);
	if (lockref->count <= 1)
		return false;
	lockref->count--;
	spin_unlock(&lockref->lock);
	return true;
}

/* The caller holds the lock. */
static inline void lockref_mark_dead(struct lockref *lockref)
{
	lockref->count = -128;
}

static inline bool __lockref_is_dead(const struct lockref *lockref)
{
	return lockref->count < 0;
}

#endif
