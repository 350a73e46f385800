/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls that run once: a caller that comes during the call waits for its end. */
#ifndef UWORK_KERNEL_LINUX_ONCE_H
#define UWORK_KERNEL_LINUX_ONCE_H

#include "../uw_kernel_lock.h"
#include <linux/once_lite.h>
#include <linux/random.h>

struct uw_kernel_once {
	struct uw_kernel_lock lock;
	/* 1 when the call is over. Read without the lock. */
	uint32_t is_done;
};

/* Returns true, with the lock, to the caller that makes the call. */
static inline bool uw_kernel_once_begin(struct uw_kernel_once *once, enum uw_kernel_patience patience)
{
	if (__atomic_load_n(&once->is_done, __ATOMIC_ACQUIRE))
		return false;
	uw_kernel_lock_acquire(&once->lock, patience);
	if (!once->is_done)
		return true;
	uw_kernel_lock_release(&once->lock);
	return false;
}

static inline void uw_kernel_once_end(struct uw_kernel_once *once)
{
	__atomic_store_n(&once->is_done, 1, __ATOMIC_RELEASE);
	uw_kernel_lock_release(&once->lock);
}

/* The value is true for the caller that made the call. */
#define UW_DO_ONCE(patience, function, ...) \
	__extension__({ \
		static struct uw_kernel_once uw_once; \
		bool uw_is_first = uw_kernel_once_begin(&uw_once, (patience)); \
		if (uw_is_first) { \
			function(__VA_ARGS__); \
			uw_kernel_once_end(&uw_once); \
		} \
		uw_is_first; \
	})
#define DO_ONCE(function, ...) UW_DO_ONCE(UW_KERNEL_SPINS, function, ##__VA_ARGS__)
#define DO_ONCE_SLEEPABLE(function, ...) UW_DO_ONCE(UW_KERNEL_SLEEPS, function, ##__VA_ARGS__)
#define get_random_once(buf, count) DO_ONCE(get_random_bytes, (buf), (count))
#define get_random_sleepable_once(buf, count) DO_ONCE_SLEEPABLE(get_random_bytes, (buf), (count))

#endif
