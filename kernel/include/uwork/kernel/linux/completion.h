/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Completions. A waiter may free the completion as soon as its wait returns, for example from its
 * stack.
 */
#ifndef UWORK_KERNEL_LINUX_COMPLETION_H
#define UWORK_KERNEL_LINUX_COMPLETION_H

#include "../uw_kernel.h"
#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/jiffies.h>

/*
 * One word. The low half counts how many waiters may return (all ones: every waiter); the high half
 * counts the waiters. complete() does not access the completion after it has changed the word: the
 * wake-up uses only the address.
 */
struct completion {
	uint64_t uw_word;
};

#define UW_KERNEL_COMPLETE_ALL 0xffffffffull
#define UW_KERNEL_ONE_WAITER (1ull << 32)

#define COMPLETION_INITIALIZER(work) { 0 }
#define COMPLETION_INITIALIZER_ONSTACK(work) COMPLETION_INITIALIZER(work)
#define DECLARE_COMPLETION(work) struct completion work = COMPLETION_INITIALIZER(work)
#define DECLARE_COMPLETION_ONSTACK(work) struct completion work = COMPLETION_INITIALIZER(work)

static inline void init_completion(struct completion *x)
{
	__atomic_store_n(&x->uw_word, 0, __ATOMIC_RELEASE);
}

/* Not allowed while a thread waits. */
static inline void reinit_completion(struct completion *x)
{
	init_completion(x);
}

/* The half of the word that counts how many waiters may return. */
static inline const uint32_t *uw_kernel_done(const struct completion *x)
{
	const void *word = &x->uw_word;

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	return (const uint32_t *)word + 1;
#else
	return (const uint32_t *)word;
#endif
}

static inline void complete(struct completion *x)
{
	uint64_t word = __atomic_load_n(&x->uw_word, __ATOMIC_RELAXED);

	do {
		if ((word & UW_KERNEL_COMPLETE_ALL) == UW_KERNEL_COMPLETE_ALL)
			return;
	} while (!__atomic_compare_exchange_n(&x->uw_word, &word, word + 1, false, __ATOMIC_RELEASE,
					      __ATOMIC_RELAXED));
	if (word >= UW_KERNEL_ONE_WAITER)
		uw_kernel_wake(uw_kernel_done(x), 1);
}

static inline void complete_all(struct completion *x)
{
	uint64_t word = __atomic_fetch_or(&x->uw_word, UW_KERNEL_COMPLETE_ALL, __ATOMIC_RELEASE);

	if (word >= UW_KERNEL_ONE_WAITER)
		uw_kernel_wake(uw_kernel_done(x), 0x7fffffff);
}

/* Takes one completion for a caller that the word counts as `waiting` (one waiter, or none). */
static inline bool uw_kernel_take_completion(struct completion *x, uint64_t waiting)
{
	uint64_t word = __atomic_load_n(&x->uw_word, __ATOMIC_ACQUIRE);

	for (;;) {
		uint64_t done = word & UW_KERNEL_COMPLETE_ALL;
		uint64_t taken = done == UW_KERNEL_COMPLETE_ALL ? 0 : 1;

		if (done == 0)
			return false;
		if (__atomic_compare_exchange_n(&x->uw_word, &word, word - taken - waiting, false,
						__ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
			return true;
	}
}

static inline bool try_wait_for_completion(struct completion *x)
{
	return uw_kernel_take_completion(x, 0);
}

static inline bool completion_done(struct completion *x)
{
	return (__atomic_load_n(&x->uw_word, __ATOMIC_ACQUIRE) & UW_KERNEL_COMPLETE_ALL) != 0;
}

/* Waits until `deadline_ns`. Returns whether the completion was taken. */
static inline bool uw_kernel_wait_completion(struct completion *x, uint64_t deadline_ns)
{
	if (uw_kernel_take_completion(x, 0))
		return true;
	__atomic_fetch_add(&x->uw_word, UW_KERNEL_ONE_WAITER, __ATOMIC_RELAXED);
	while (!uw_kernel_take_completion(x, UW_KERNEL_ONE_WAITER)) {
		uint64_t left = UW_KERNEL_FOREVER;

		if (deadline_ns != UW_KERNEL_FOREVER) {
			uint64_t now = uw_kernel_now_ns();

			if (now >= deadline_ns) {
				__atomic_fetch_sub(&x->uw_word, UW_KERNEL_ONE_WAITER, __ATOMIC_RELAXED);
				return false;
			}
			left = deadline_ns - now;
		}
		uw_kernel_wait(uw_kernel_done(x), 0, left);
	}
	return true;
}

static inline void wait_for_completion(struct completion *x)
{
	uw_kernel_wait_completion(x, UW_KERNEL_FOREVER);
}

/* Returns the remaining ticks, at least 1; 0 after a timeout. */
static inline unsigned long wait_for_completion_timeout(struct completion *x, unsigned long timeout)
{
	uint64_t wait_ns = uw_kernel_jiffies_to_ns(timeout);
	uint64_t now = uw_kernel_now_ns();
	uint64_t deadline = wait_ns > UINT64_MAX - now ? UW_KERNEL_FOREVER : now + wait_ns;
	uint64_t end;

	if (!uw_kernel_wait_completion(x, deadline))
		return 0;
	end = uw_kernel_now_ns();
	if (deadline == UW_KERNEL_FOREVER)
		return timeout;
	return end < deadline ? (unsigned long)((deadline - end) / UW_KERNEL_NS_PER_JIFFY) + 1 : 1;
}

static inline int wait_for_completion_interruptible(struct completion *x)
{
	wait_for_completion(x);
	return 0;
}

static inline int wait_for_completion_killable(struct completion *x)
{
	wait_for_completion(x);
	return 0;
}

static inline long wait_for_completion_interruptible_timeout(struct completion *x, unsigned long timeout)
{
	return (long)wait_for_completion_timeout(x, timeout);
}

static inline long wait_for_completion_killable_timeout(struct completion *x, unsigned long timeout)
{
	return (long)wait_for_completion_timeout(x, timeout);
}

#define wait_for_completion_io(x) wait_for_completion(x)
#define wait_for_completion_io_timeout(x, timeout) wait_for_completion_timeout(x, timeout)

#define DECLARE_COMPLETION_ONSTACK_MAP(work, map) DECLARE_COMPLETION_ONSTACK(work)
#define COMPLETION_INITIALIZER_ONSTACK_MAP(work, map) COMPLETION_INITIALIZER_ONSTACK(work)
#define init_completion_map(x, map) init_completion(x)
#define complete_on_current_cpu(x) complete(x)

#endif
