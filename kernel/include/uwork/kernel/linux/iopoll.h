/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Loops that read a value until a condition holds, with a timeout. */
#ifndef UWORK_KERNEL_LINUX_IOPOLL_H
#define UWORK_KERNEL_LINUX_IOPOLL_H

#include <linux/delay.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/ktime.h>

/*
 * 0 when the condition holds, or -ETIMEDOUT if it does not hold after the timeout. It is evaluated
 * once more then, because the thread may have been preempted. A timeout of 0 is no limit.
 */
#define UW_POLL_TIMEOUT(operation, condition, pause, timeout_us, pause_first) \
	__extension__({ \
		u64 uw_timeout_us = (u64)(timeout_us); \
		u64 uw_end_ns = ktime_get_ns() + uw_timeout_us * (u64)NSEC_PER_USEC; \
		int uw_result; \
		if (pause_first) \
			pause; \
		for (;;) { \
			bool uw_is_late = uw_timeout_us && ktime_get_ns() > uw_end_ns; \
			operation; \
			uw_result = (condition) ? 0 : -ETIMEDOUT; \
			if (!uw_result || uw_is_late) \
				break; \
			pause; \
			cpu_relax(); \
		} \
		uw_result; \
	})
#define UW_POLL_SLEEP(us) \
	do { \
		if (us) \
			usleep_range(((us) >> 2) + 1, (us)); \
	} while (0)
#define UW_POLL_DELAY(us) \
	do { \
		if (us) \
			udelay(us); \
	} while (0)

#define poll_timeout_us(operation, condition, sleep_us, timeout_us, sleep_first) \
	UW_POLL_TIMEOUT(operation, condition, UW_POLL_SLEEP((unsigned long)(sleep_us)), timeout_us, sleep_first)
#define poll_timeout_us_atomic(operation, condition, delay_us, timeout_us, delay_first) \
	UW_POLL_TIMEOUT(operation, condition, UW_POLL_DELAY((unsigned long)(delay_us)), timeout_us, delay_first)
#define read_poll_timeout(function, val, condition, sleep_us, timeout_us, sleep_first, ...) \
	poll_timeout_us((val) = function(__VA_ARGS__), condition, sleep_us, timeout_us, sleep_first)
#define read_poll_timeout_atomic(function, val, condition, delay_us, timeout_us, delay_first, ...) \
	poll_timeout_us_atomic((val) = function(__VA_ARGS__), condition, delay_us, timeout_us, delay_first)
#define readx_poll_timeout(function, addr, val, condition, sleep_us, timeout_us) \
	read_poll_timeout(function, val, condition, sleep_us, timeout_us, false, addr)
#define readx_poll_timeout_atomic(function, addr, val, condition, delay_us, timeout_us) \
	read_poll_timeout_atomic(function, val, condition, delay_us, timeout_us, false, addr)

#endif
