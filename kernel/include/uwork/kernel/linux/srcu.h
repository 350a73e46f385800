/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sleepable read sides, in domains of their own. */
#ifndef UWORK_KERNEL_LINUX_SRCU_H
#define UWORK_KERNEL_LINUX_SRCU_H

#include "../uw_kernel.h"
#include <linux/compiler.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>

/*
 * Readers count themselves in one of two words. A grace period waits until it has seen each word
 * empty once. It first waits for the word that is not in use: it can count only readers that began
 * long ago. Then it directs new readers to that word and waits for the other one. A reader that
 * counts itself after that began after the grace period did. The highest bit says that a thread
 * waits for the word to become empty. A leaving reader does not access the word after its
 * decrement.
 */
struct srcu_struct {
	struct mutex uw_lock;
	uint32_t uw_index;
	uint32_t uw_readers[2];
	/* Runs the callbacks of call_srcu() after a grace period: a stack, the newest first. */
	struct uw_work uw_item;
	struct rcu_head *uw_callbacks;
	/* Counts the beginnings and the ends of grace periods: odd during one. Guard of writes: the lock. */
	unsigned long uw_periods;
	/* The item's next run has a grace period, also without callbacks. */
	uint32_t uw_is_polled;
};

#ifdef __cplusplus
extern "C" {
#endif
void uw_kernel_srcu_run(struct uw_work *item);
/* Calls the function on a thread of the library after a grace period of this domain. */
void call_srcu(struct srcu_struct *ssp, struct rcu_head *head, rcu_callback_t func) UW_KERNEL_NAME(call_srcu);
/* Waits until the callbacks of all earlier call_srcu() for this domain have run. */
void srcu_barrier(struct srcu_struct *ssp) UW_KERNEL_NAME(srcu_barrier);
/* Begins a grace period, unless one will begin anyway. Returns its state, as the function below. */
unsigned long start_poll_synchronize_srcu(struct srcu_struct *ssp) UW_KERNEL_NAME(start_poll_synchronize_srcu);
#ifdef __cplusplus
}
#endif

#define UW_SRCU_WAITED 0x80000000u
#define UW_SRCU_INIT { { UW_KERNEL_LOCK_INIT }, 0, { 0, 0 }, UW_WORK_INIT(uw_kernel_srcu_run), NULL, 0, 0 }
#define DEFINE_SRCU(name) struct srcu_struct name = UW_SRCU_INIT
#define DEFINE_STATIC_SRCU(name) static struct srcu_struct name = UW_SRCU_INIT

static inline int init_srcu_struct(struct srcu_struct *ssp)
{
	mutex_init(&ssp->uw_lock);
	ssp->uw_index = 0;
	ssp->uw_readers[0] = 0;
	ssp->uw_readers[1] = 0;
	uw_work_init(&ssp->uw_item, uw_kernel_srcu_run);
	ssp->uw_callbacks = NULL;
	ssp->uw_periods = 0;
	ssp->uw_is_polled = 0;
	return 0;
}

/* Not allowed while there are readers or callbacks: srcu_barrier() waits for these. */
static inline void cleanup_srcu_struct(struct srcu_struct *ssp)
{
	int answer = uw_work_cancel_sync(&ssp->uw_item);

	if (answer < 0)
		uw_kernel_complain(answer);
	mutex_destroy(&ssp->uw_lock);
}

/* The result is the argument of the unlock. */
static inline int srcu_read_lock(struct srcu_struct *ssp)
{
	uint32_t index = __atomic_load_n(&ssp->uw_index, __ATOMIC_RELAXED);

	/* Full order: the reader's later loads do not return values from before the count. */
	__atomic_fetch_add(&ssp->uw_readers[index], 1, __ATOMIC_SEQ_CST);
	smp_mb();
	return (int)index;
}

static inline void srcu_read_unlock(struct srcu_struct *ssp, int index)
{
	uint32_t *word = &ssp->uw_readers[index];

	if (__atomic_sub_fetch(word, 1, __ATOMIC_SEQ_CST) == UW_SRCU_WAITED)
		uw_kernel_wake(word, 0x7fffffff);
}

static inline void uw_srcu_wait(uint32_t *word)
{
	uint32_t readers = __atomic_or_fetch(word, UW_SRCU_WAITED, __ATOMIC_SEQ_CST);

	while (readers != UW_SRCU_WAITED) {
		uw_kernel_wait(word, readers, UW_KERNEL_FOREVER);
		readers = __atomic_load_n(word, __ATOMIC_SEQ_CST);
	}
	__atomic_fetch_and(word, ~UW_SRCU_WAITED, __ATOMIC_SEQ_CST);
}

/* Waits for the current readers of this domain. Not allowed within a read side of it. */
static inline void synchronize_srcu(struct srcu_struct *ssp)
{
	uint32_t index;

	smp_mb();
	mutex_lock(&ssp->uw_lock);
	index = ssp->uw_index;
	__atomic_store_n(&ssp->uw_periods, ssp->uw_periods + 1, __ATOMIC_SEQ_CST);
	uw_srcu_wait(&ssp->uw_readers[!index]);
	__atomic_store_n(&ssp->uw_index, !index, __ATOMIC_SEQ_CST);
	uw_srcu_wait(&ssp->uw_readers[index]);
	__atomic_store_n(&ssp->uw_periods, ssp->uw_periods + 1, __ATOMIC_SEQ_CST);
	mutex_unlock(&ssp->uw_lock);
	smp_mb();
}

static inline void synchronize_srcu_expedited(struct srcu_struct *ssp)
{
	synchronize_srcu(ssp);
}

/*
 * A state that has passed when a whole grace period has ended since: the end of the next one, or of
 * the one after it if one is in progress, because that may have begun before the caller's changes.
 */
static inline unsigned long get_state_synchronize_srcu(struct srcu_struct *ssp)
{
	smp_mb();
	return (__atomic_load_n(&ssp->uw_periods, __ATOMIC_SEQ_CST) + 3) & ~1ul;
}

static inline bool poll_state_synchronize_srcu(struct srcu_struct *ssp, unsigned long state)
{
	bool has_passed = (long)(__atomic_load_n(&ssp->uw_periods, __ATOMIC_SEQ_CST) - state) >= 0;

	/* In a forked child, where the item is idle, this begins the grace period that the parent has asked for. */
	if (!has_passed && __atomic_load_n(&ssp->uw_is_polled, __ATOMIC_RELAXED) && !uw_work_is_pending(&ssp->uw_item))
		uw_queue_work(uw_system_queue(UW_SYSTEM_DFL_LONG), &ssp->uw_item);
	/* What the caller frees now is not accessed before this. */
	smp_mb();
	return has_passed;
}

#define srcu_read_lock_nmisafe(ssp) srcu_read_lock(ssp)
#define srcu_read_unlock_nmisafe(ssp, index) srcu_read_unlock((ssp), (index))
#define srcu_read_lock_held(ssp) ((void)(ssp), true)
#define srcu_dereference(p, ssp) ((void)(ssp), rcu_dereference(p))
#define srcu_dereference_check(p, ssp, condition) srcu_dereference(p, ssp)

#ifndef __cplusplus
DEFINE_LOCK_GUARD_1(srcu, struct srcu_struct, _T->index = srcu_read_lock(_T->lock),
		    srcu_read_unlock(_T->lock, _T->index), int index)
#endif

#endif
