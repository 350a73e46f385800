/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Spin locks and rw locks. They spin briefly and then sleep, because the holder may be preempted.
 */
#ifndef UWORK_KERNEL_LINUX_SPINLOCK_H
#define UWORK_KERNEL_LINUX_SPINLOCK_H

#include <linux/cleanup.h>
#include "../uw_kernel_lock.h"
#include <linux/irqflags.h>
#include <linux/lockdep.h>
#include <linux/preempt.h>

typedef struct spinlock {
	struct uw_kernel_lock uw_lock;
} spinlock_t;

typedef struct spinlock raw_spinlock_t;

#define __SPIN_LOCK_UNLOCKED(name) { UW_KERNEL_LOCK_INIT }
#define __SPIN_LOCK_INITIALIZER(name) __SPIN_LOCK_UNLOCKED(name)
#define __RAW_SPIN_LOCK_UNLOCKED(name) __SPIN_LOCK_UNLOCKED(name)
#define DEFINE_SPINLOCK(name) spinlock_t name = __SPIN_LOCK_UNLOCKED(name)
#define DEFINE_RAW_SPINLOCK(name) raw_spinlock_t name = __SPIN_LOCK_UNLOCKED(name)

static inline void spin_lock_init(spinlock_t *lock)
{
	lock->uw_lock.word = 0;
}

static inline void spin_lock(spinlock_t *lock)
{
	uw_kernel_lock_acquire(&lock->uw_lock, UW_KERNEL_SPINS);
}

static inline void spin_unlock(spinlock_t *lock)
{
	uw_kernel_lock_release(&lock->uw_lock);
}

static inline bool spin_trylock(spinlock_t *lock)
{
	return uw_kernel_trylock(&lock->uw_lock);
}

static inline bool spin_is_locked(const spinlock_t *lock)
{
	return uw_kernel_is_locked(&lock->uw_lock);
}

#define spin_lock_irq(lock) spin_lock(lock)
#define spin_unlock_irq(lock) spin_unlock(lock)
#define spin_lock_bh(lock) spin_lock(lock)
#define spin_unlock_bh(lock) spin_unlock(lock)
#define spin_lock_nested(lock, subclass) spin_lock(lock)
#define spin_lock_nest_lock(lock, other) spin_lock(lock)
#define spin_lock_irqsave_nested(lock, flags, subclass) spin_lock_irqsave(lock, flags)
#define spin_lock_irqsave(lock, flags) ((flags) = 0, spin_lock(lock))
#define spin_unlock_irqrestore(lock, flags) ((void)(flags), spin_unlock(lock))
#define spin_trylock_irqsave(lock, flags) ((flags) = 0, spin_trylock(lock))
#define spin_trylock_irq(lock) spin_trylock(lock)
#define spin_trylock_bh(lock) spin_trylock(lock)
#define assert_spin_locked(lock) ((void)(lock))
#define spin_is_contended(lock) ((void)(lock), 0)
#define spin_needbreak(lock) ((void)(lock), 0)
#define smp_mb__after_spinlock() smp_mb()

#define raw_spin_lock_init(lock) spin_lock_init(lock)
#define raw_spin_lock(lock) spin_lock(lock)
#define raw_spin_unlock(lock) spin_unlock(lock)
#define raw_spin_trylock(lock) spin_trylock(lock)
#define raw_spin_is_locked(lock) spin_is_locked(lock)
#define raw_spin_lock_nested(lock, subclass) spin_lock(lock)
#define raw_spin_lock_irq(lock) spin_lock(lock)
#define raw_spin_unlock_irq(lock) spin_unlock(lock)
#define raw_spin_lock_bh(lock) spin_lock(lock)
#define raw_spin_unlock_bh(lock) spin_unlock(lock)
#define raw_spin_lock_irqsave(lock, flags) spin_lock_irqsave(lock, flags)
#define raw_spin_unlock_irqrestore(lock, flags) spin_unlock_irqrestore(lock, flags)
#define raw_spin_trylock_irqsave(lock, flags) spin_trylock_irqsave(lock, flags)

/* 0: the lock was not released. A waiter that is starved gets it at the next unlock. */
#define cond_resched_lock(lock) ((void)(lock), 0)

typedef struct {
	struct uw_kernel_rwlock uw_lock;
} rwlock_t;

#define __RW_LOCK_UNLOCKED(name) { { 0 } }
#define DEFINE_RWLOCK(name) rwlock_t name = __RW_LOCK_UNLOCKED(name)

static inline void rwlock_init(rwlock_t *lock)
{
	lock->uw_lock.word = 0;
}

static inline void read_lock(rwlock_t *lock)
{
	uw_kernel_read_lock(&lock->uw_lock, UW_KERNEL_SPINS);
}

static inline void read_unlock(rwlock_t *lock)
{
	uw_kernel_read_unlock(&lock->uw_lock);
}

static inline void write_lock(rwlock_t *lock)
{
	uw_kernel_write_lock(&lock->uw_lock, UW_KERNEL_SPINS);
}

static inline void write_unlock(rwlock_t *lock)
{
	uw_kernel_write_unlock(&lock->uw_lock);
}

static inline int read_trylock(rwlock_t *lock)
{
	return uw_kernel_read_trylock(&lock->uw_lock);
}

static inline int write_trylock(rwlock_t *lock)
{
	return uw_kernel_write_trylock(&lock->uw_lock);
}

#define read_lock_irq(lock) read_lock(lock)
#define read_unlock_irq(lock) read_unlock(lock)
#define read_lock_bh(lock) read_lock(lock)
#define read_unlock_bh(lock) read_unlock(lock)
#define write_lock_irq(lock) write_lock(lock)
#define write_unlock_irq(lock) write_unlock(lock)
#define write_lock_bh(lock) write_lock(lock)
#define write_unlock_bh(lock) write_unlock(lock)
#define read_lock_irqsave(lock, flags) ((flags) = 0, read_lock(lock))
#define read_unlock_irqrestore(lock, flags) ((void)(flags), read_unlock(lock))
#define write_lock_irqsave(lock, flags) ((flags) = 0, write_lock(lock))
#define write_unlock_irqrestore(lock, flags) ((void)(flags), write_unlock(lock))

#ifndef __cplusplus
DEFINE_GUARD(raw_spinlock, raw_spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD_COND(raw_spinlock, _try, spin_trylock(_T))
DEFINE_GUARD(raw_spinlock_irq, raw_spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD_COND(raw_spinlock_irq, _try, spin_trylock(_T))
DEFINE_GUARD(raw_spinlock_irqsave, raw_spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD_COND(raw_spinlock_irqsave, _try, spin_trylock(_T))
DEFINE_GUARD(raw_spinlock_bh, raw_spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD_COND(raw_spinlock_bh, _try, spin_trylock(_T))
DEFINE_GUARD(spinlock, spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD_COND(spinlock, _try, spin_trylock(_T))
DEFINE_GUARD(spinlock_irq, spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD_COND(spinlock_irq, _try, spin_trylock(_T))
DEFINE_GUARD(spinlock_irqsave, spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD_COND(spinlock_irqsave, _try, spin_trylock(_T))
DEFINE_GUARD(spinlock_bh, spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD_COND(spinlock_bh, _try, spin_trylock(_T))
DEFINE_GUARD(raw_spinlock_nested, raw_spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD(read_lock, rwlock_t *, read_lock(_T), read_unlock(_T))
DEFINE_GUARD(read_lock_irq, rwlock_t *, read_lock(_T), read_unlock(_T))
DEFINE_GUARD(read_lock_irqsave, rwlock_t *, read_lock(_T), read_unlock(_T))
DEFINE_GUARD(write_lock, rwlock_t *, write_lock(_T), write_unlock(_T))
DEFINE_GUARD(write_lock_irq, rwlock_t *, write_lock(_T), write_unlock(_T))
DEFINE_GUARD(write_lock_irqsave, rwlock_t *, write_lock(_T), write_unlock(_T))
#endif

#endif
