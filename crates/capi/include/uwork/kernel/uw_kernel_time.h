/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* HZ and jiffies, for headers that stand on their own. */
#ifndef UWORK_KERNEL_UW_KERNEL_TIME_H
#define UWORK_KERNEL_UW_KERNEL_TIME_H

#include "uw_kernel.h"

/* What the program's own header says, if it has one. Ours is empty when it is asked, and says the same as is said here. */
#if defined(__has_include)
#if __has_include(<linux/jiffies.h>)
#define UW_KERNEL_ASKS
#include <linux/jiffies.h>
#undef UW_KERNEL_ASKS
#endif
#endif

#ifndef HZ
#define HZ 1000
#endif
#ifndef jiffies
#define jiffies ((unsigned long)(uw_kernel_now_ns() / (1000000000ULL / HZ)))
#endif

/* As far as the clock goes. */
static inline uint64_t uw_kernel_ticks_to_ns(unsigned long ticks)
{
	return ticks > UINT64_MAX / (1000000000ULL / HZ) ? UINT64_MAX : ticks * (1000000000ULL / HZ);
}

#endif
