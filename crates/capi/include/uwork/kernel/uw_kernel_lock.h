/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A lock of one word: spins a little, then sleeps. Unlocking touches nothing afterwards. */
#ifndef UWORK_KERNEL_UW_KERNEL_LOCK_H
#define UWORK_KERNEL_UW_KERNEL_LOCK_H

#include <linux/compiler.h>
#include "uw_kernel.h"

struct uw_kernel_lock {
	uint32_t word; /* 0: free; 1: held; 2: held, and somebody may sleep */
};

#define UW_KERNEL_LOCK_INIT { 0 }
#define UW_KERNEL_LOCK_SPINS 100

static inline bool uw_kernel_trylock(struct uw_kernel_lock *lock)
{
	uint32_t is_free = 0;

	return __atomic_compare_exchange_n(&lock->word, &is_free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void uw_kernel_lock_acquire(struct uw_kernel_lock *lock)
{
	int spins;

	for (spins = 0; spins < UW_KERNEL_LOCK_SPINS; spins++) {
		if (uw_kernel_trylock(lock))
			return;
		cpu_relax();
	}
	while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0)
		uw_kernel_wait(&lock->word, 2, UW_KERNEL_FOREVER);
}

static inline void uw_kernel_lock_release(struct uw_kernel_lock *lock)
{
	if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2)
		uw_kernel_wake(&lock->word, 1);
}

static inline bool uw_kernel_is_locked(const struct uw_kernel_lock *lock)
{
	return __atomic_load_n(&lock->word, __ATOMIC_RELAXED) != 0;
}

/* Several readers or one writer: how many readers, or all ones. */
struct uw_kernel_rwlock {
	uint32_t word;
	uint32_t sleepers;
};

#define UW_KERNEL_WRITER 0xffffffffu

static inline bool uw_kernel_read_trylock(struct uw_kernel_rwlock *lock)
{
	uint32_t readers = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);

	while (readers != UW_KERNEL_WRITER) {
		if (__atomic_compare_exchange_n(&lock->word, &readers, readers + 1, false, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return true;
	}
	return false;
}

static inline bool uw_kernel_write_trylock(struct uw_kernel_rwlock *lock)
{
	uint32_t is_free = 0;

	return __atomic_compare_exchange_n(&lock->word, &is_free, UW_KERNEL_WRITER, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

/* Sleeps if the word is as it was when the lock could not be had. */
static inline void uw_kernel_rw_sleep(struct uw_kernel_rwlock *lock)
{
	uint32_t word;

	__atomic_fetch_add(&lock->sleepers, 1, __ATOMIC_SEQ_CST);
	word = __atomic_load_n(&lock->word, __ATOMIC_SEQ_CST);
	if (word != 0)
		uw_kernel_wait(&lock->word, word, UW_KERNEL_FOREVER);
	__atomic_fetch_sub(&lock->sleepers, 1, __ATOMIC_SEQ_CST);
}

static inline void uw_kernel_read_lock(struct uw_kernel_rwlock *lock)
{
	while (!uw_kernel_read_trylock(lock))
		uw_kernel_rw_sleep(lock);
}

static inline void uw_kernel_write_lock(struct uw_kernel_rwlock *lock)
{
	while (!uw_kernel_write_trylock(lock))
		uw_kernel_rw_sleep(lock);
}

static inline void uw_kernel_rw_wake(struct uw_kernel_rwlock *lock)
{
	if (__atomic_load_n(&lock->sleepers, __ATOMIC_SEQ_CST) != 0)
		uw_kernel_wake(&lock->word, 0x7fffffff);
}

static inline void uw_kernel_read_unlock(struct uw_kernel_rwlock *lock)
{
	__atomic_fetch_sub(&lock->word, 1, __ATOMIC_SEQ_CST);
	uw_kernel_rw_wake(lock);
}

static inline void uw_kernel_write_unlock(struct uw_kernel_rwlock *lock)
{
	__atomic_store_n(&lock->word, 0, __ATOMIC_SEQ_CST);
	uw_kernel_rw_wake(lock);
}

#endif
