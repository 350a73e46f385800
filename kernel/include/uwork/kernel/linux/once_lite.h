/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls that run once, without waiting for each other. */
#ifndef UWORK_KERNEL_LINUX_ONCE_LITE_H
#define UWORK_KERNEL_LINUX_ONCE_LITE_H

#include <linux/printk.h>

/* The value is that of the condition. */
#define DO_ONCE_LITE_IF(condition, function, ...) \
	__extension__({ \
		static uint32_t uw_once; \
		bool uw_is = !!(condition); \
		if (unlikely(uw_is) && uw_kernel_once(&uw_once)) \
			function(__VA_ARGS__); \
		uw_is; \
	})
#define DO_ONCE_LITE(function, ...) DO_ONCE_LITE_IF(true, function, ##__VA_ARGS__)

#endif
