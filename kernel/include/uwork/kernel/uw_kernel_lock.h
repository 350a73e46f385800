/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Locks of one word each. They spin briefly and then sleep, because the holder may be preempted.
 * Unlocking does not access the lock after it is free, so the next holder may free the memory that
 * contains it. A wake-up for an address without sleepers does nothing.
 */
#ifndef UWORK_KERNEL_UW_KERNEL_LOCK_H
#define UWORK_KERNEL_UW_KERNEL_LOCK_H

#include <linux/compiler.h>
#include "uw_kernel.h"

/* How the caller's pool treats a wait for a lock. */
enum uw_kernel_patience {
	/*
	 * Not as a wait: the thread counts as preempted. For spin locks, which BH items and timers
	 * may take.
	 */
	UW_KERNEL_SPINS,
	/* After UW_KERNEL_PATIENCE_NS as a declared wait: another worker takes the queued items. */
	UW_KERNEL_SLEEPS
};

#define UW_KERNEL_LOCK_SPINS 100
/* A shorter wait is not worth waking another worker. */
#define UW_KERNEL_PATIENCE_NS 200000
/* A waiter becomes starved after this time, and then gets the lock before newcomers. */
#define UW_KERNEL_STARVED_NS 1000000

#define UW_KERNEL_EVERYBODY 0x7fffffff

/* Sleeps while the word has this value, at first at most until the next of the two limits above. */
static inline void uw_kernel_lock_sleep(const uint32_t *word, uint32_t value, enum uw_kernel_patience patience,
					uint64_t began_ns)
{
	uint64_t waited_ns = uw_kernel_now_ns() - began_ns;

	uint64_t left_ns = waited_ns < UW_KERNEL_STARVED_NS ? UW_KERNEL_STARVED_NS - waited_ns : UW_KERNEL_FOREVER;

	if (patience == UW_KERNEL_SPINS)
		uw_kernel_wait_unseen(word, value, left_ns);
	else if (waited_ns < UW_KERNEL_PATIENCE_NS)
		uw_kernel_wait_unseen(word, value, UW_KERNEL_PATIENCE_NS - waited_ns);
	else
		uw_kernel_wait(word, value, left_ns);
}

/* ----------------------------------------------------------------------------- exclusive locks */

/*
 * Free: 0. A thread that arrives takes a free lock before the sleepers do, because it is running
 * already. To bound the sleepers' wait, a waiter that has waited for long sets STARVED. That mark
 * keeps newcomers out until one such waiter has the lock.
 */
struct uw_kernel_lock {
	uint32_t word;
};

#define UW_KERNEL_LOCK_INIT { 0 }
#define UW_KERNEL_HELD 1u
#define UW_KERNEL_SLEEPERS 2u
#define UW_KERNEL_STARVED 4u

static inline bool uw_kernel_trylock(struct uw_kernel_lock *lock)
{
	uint32_t is_free = 0;

	return __atomic_compare_exchange_n(&lock->word, &is_free, UW_KERNEL_HELD, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static inline void uw_kernel_lock_wait(struct uw_kernel_lock *lock, enum uw_kernel_patience patience)
{
	uint64_t began_ns = uw_kernel_now_ns();
	uint32_t word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);

	for (;;) {
		bool starved = uw_kernel_now_ns() - began_ns >= UW_KERNEL_STARVED_NS;
		/*
		 * Other threads may sleep as well, so a waiter that takes the lock keeps the
		 * SLEEPERS mark set.
		 */
		uint32_t next = UW_KERNEL_HELD | UW_KERNEL_SLEEPERS;
		bool take = !(word & UW_KERNEL_HELD) && (starved || !(word & UW_KERNEL_STARVED));

		if (!take)
			next = word | UW_KERNEL_SLEEPERS | (starved ? UW_KERNEL_STARVED : 0);
		if (next != word && !__atomic_compare_exchange_n(&lock->word, &word, next, false, __ATOMIC_ACQUIRE,
								 __ATOMIC_RELAXED))
			continue;
		if (take)
			return;
		uw_kernel_lock_sleep(&lock->word, next, patience, began_ns);
		word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);
	}
}

static inline void uw_kernel_lock_acquire(struct uw_kernel_lock *lock, enum uw_kernel_patience patience)
{
	int spins;

	for (spins = 0; spins < UW_KERNEL_LOCK_SPINS; spins++) {
		if (uw_kernel_trylock(lock))
			return;
		cpu_relax();
	}
	uw_kernel_lock_wait(lock, patience);
}

static inline void uw_kernel_lock_release(struct uw_kernel_lock *lock)
{
	/*
	 * If a waiter is starved, all sleepers are woken. A single wake-up could go to a sleeper
	 * that STARVED keeps out.
	 */
	uint32_t word = UW_KERNEL_HELD;
	uint32_t left;

	if (__atomic_compare_exchange_n(&lock->word, &word, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		return;
	do {
		left = word & UW_KERNEL_STARVED ? word & ~UW_KERNEL_HELD : 0;
	} while (!__atomic_compare_exchange_n(&lock->word, &word, left, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	uw_kernel_wake(&lock->word, left ? UW_KERNEL_EVERYBODY : 1);
}

static inline bool uw_kernel_is_locked(const struct uw_kernel_lock *lock)
{
	return __atomic_load_n(&lock->word, __ATOMIC_RELAXED) & UW_KERNEL_HELD;
}

/* --------------------------------------------------------------------------- reader-writer locks */

/*
 * The number of readers, and marks. A waiting writer keeps new readers out. When a writer unlocks,
 * all waiting readers and writers are woken and compete.
 */
struct uw_kernel_rwlock {
	uint32_t word;
};

#define UW_KERNEL_RW_WRITER 0x80000000u
/* Threads may sleep. */
#define UW_KERNEL_RW_SLEEPERS 0x40000000u
/*
 * A writer waits. A writer that takes the lock clears the mark; other waiting writers set it again.
 */
#define UW_KERNEL_RW_WRITER_WAITS 0x20000000u
#define UW_KERNEL_RW_READERS 0x1fffffffu

static inline bool uw_kernel_read_trylock(struct uw_kernel_rwlock *lock)
{
	uint32_t word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);

	while (!(word & (UW_KERNEL_RW_WRITER | UW_KERNEL_RW_WRITER_WAITS))) {
		if (__atomic_compare_exchange_n(&lock->word, &word, word + 1, true, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return true;
	}
	return false;
}

static inline bool uw_kernel_write_trylock(struct uw_kernel_rwlock *lock)
{
	uint32_t word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);

	while (!(word & (UW_KERNEL_RW_WRITER | UW_KERNEL_RW_READERS))) {
		uint32_t taken = (word & UW_KERNEL_RW_SLEEPERS) | UW_KERNEL_RW_WRITER;

		if (__atomic_compare_exchange_n(&lock->word, &word, taken, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return true;
	}
	return false;
}

/* Sets these marks and sleeps, unless the lock has become available. */
static inline void uw_kernel_rw_sleep(struct uw_kernel_rwlock *lock, uint32_t in_the_way, uint32_t marks,
				      enum uw_kernel_patience patience, uint64_t began_ns)
{
	uint32_t word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);

	do {
		if (!(word & in_the_way))
			return;
	} while ((word & marks) != marks && !__atomic_compare_exchange_n(&lock->word, &word, word | marks, true,
									 __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	uw_kernel_lock_sleep(&lock->word, word | marks, patience, began_ns);
}

static inline void uw_kernel_read_lock(struct uw_kernel_rwlock *lock, enum uw_kernel_patience patience)
{
	uint64_t began_ns;

	if (uw_kernel_read_trylock(lock))
		return;
	began_ns = uw_kernel_now_ns();
	while (!uw_kernel_read_trylock(lock))
		uw_kernel_rw_sleep(lock, UW_KERNEL_RW_WRITER | UW_KERNEL_RW_WRITER_WAITS, UW_KERNEL_RW_SLEEPERS, patience,
				   began_ns);
}

static inline void uw_kernel_write_lock(struct uw_kernel_rwlock *lock, enum uw_kernel_patience patience)
{
	uint64_t began_ns;

	if (uw_kernel_write_trylock(lock))
		return;
	began_ns = uw_kernel_now_ns();
	while (!uw_kernel_write_trylock(lock))
		uw_kernel_rw_sleep(lock, UW_KERNEL_RW_WRITER | UW_KERNEL_RW_READERS,
				   UW_KERNEL_RW_SLEEPERS | UW_KERNEL_RW_WRITER_WAITS, patience, began_ns);
}

static inline void uw_kernel_read_unlock(struct uw_kernel_rwlock *lock)
{
	uint32_t before = __atomic_fetch_sub(&lock->word, 1, __ATOMIC_RELEASE);

	/* The last reader wakes all sleepers. The marks stay for the writer that takes the lock. */
	if ((before & UW_KERNEL_RW_SLEEPERS) && (before & UW_KERNEL_RW_READERS) == 1)
		uw_kernel_wake(&lock->word, UW_KERNEL_EVERYBODY);
}

/* `readers` is the new state: 0, or 1 if the caller becomes a reader. */
static inline void uw_kernel_write_unlock_to(struct uw_kernel_rwlock *lock, uint32_t readers)
{
	if (__atomic_exchange_n(&lock->word, readers, __ATOMIC_RELEASE) & UW_KERNEL_RW_SLEEPERS)
		uw_kernel_wake(&lock->word, UW_KERNEL_EVERYBODY);
}

static inline void uw_kernel_write_unlock(struct uw_kernel_rwlock *lock)
{
	uw_kernel_write_unlock_to(lock, 0);
}

#endif
