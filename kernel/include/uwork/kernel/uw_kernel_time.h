/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* HZ and jiffies, for headers that are independent of the others. */
#ifndef UWORK_KERNEL_UW_KERNEL_TIME_H
#define UWORK_KERNEL_UW_KERNEL_TIME_H

#include "uw_kernel.h"

/*
 * Uses the definitions of the program's own header, if there is one. The library's header defines
 * only UW_KERNEL_JIFFIES_H_IS_OURS when UW_KERNEL_ASKS is defined.
 */
#if defined(__has_include)
#if __has_include(<linux/jiffies.h>)
#define UW_KERNEL_ASKS
#include <linux/jiffies.h>
#undef UW_KERNEL_ASKS
#else
#define UW_KERNEL_JIFFIES_H_IS_OURS
#endif
#endif

/* A `jiffies` that is a macro already is the program's, as is that of its own linux/jiffies.h. */
#if (defined(UWORK_KERNEL_ENVIRONMENT) || defined(UW_KERNEL_JIFFIES_H_IS_OURS)) && !defined(jiffies)
#include "uw_kernel_jiffies.h"
#define UW_KERNEL_JIFFIES uw_kernel_jiffies()
#else
#ifndef HZ
#define HZ 1000
#endif
#define UW_KERNEL_JIFFIES jiffies
#endif

/*
 * Saturates at INT64_MAX, which never passes. A number of ticks that was negative stays beyond it,
 * and the call that gets it fails with a warning.
 */
static inline uint64_t uw_kernel_ticks_to_ns(unsigned long ticks)
{
	if ((long)ticks < 0)
		return UINT64_MAX;
	return ticks > INT64_MAX / (1000000000ULL / HZ) ? INT64_MAX : ticks * (1000000000ULL / HZ);
}

#endif
