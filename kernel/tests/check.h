/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of a module, whose init function fails if one has failed. */
#ifndef CHECK_H
#define CHECK_H

#include <linux/errno.h>
#include <linux/module.h>
#include <linux/printk.h>

static int failed;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			failed++; \
		} \
	} while (0)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_INSTRUMENTED 1
#elif defined(__has_feature)
#define IS_INSTRUMENTED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define IS_INSTRUMENTED 0
#endif

/*
 * The sanitizers' runtimes have locks of their own, for example in their allocator, which they do
 * not hold over a fork. A child may inherit one that another thread held; its next malloc() then
 * waits forever. The thread sanitizer also ends a child whose new thread gets the address of a
 * thread of the parent.
 */
#define CAN_FORK_WITH_THREADS (!IS_INSTRUMENTED)

static inline int checked(void)
{
	if (failed)
		return -EIO;
	pr_info("ok\n");
	return 0;
}

#endif
