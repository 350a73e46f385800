/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The cycle counter. */
#ifndef UWORK_KERNEL_LINUX_TIMEX_H
#define UWORK_KERNEL_LINUX_TIMEX_H

#include <linux/ktime.h>

typedef unsigned long long cycles_t;

static inline cycles_t get_cycles(void)
{
#if defined(__x86_64__)
	unsigned int low, high;

	__asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
	return (cycles_t)high << 32 | low;
#elif defined(__aarch64__)
	cycles_t count;

	__asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(count));
	return count;
#else
	return uw_kernel_now_ns();
#endif
}

#endif
