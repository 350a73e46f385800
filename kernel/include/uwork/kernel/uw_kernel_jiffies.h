/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The variable `jiffies`: a plain name, so that members and parameters may be called so too. A
 * thread of the library counts it up, in processes in which a program or library reads it. After a
 * late tick it is late as well. Functions that expire, sleep or wait set it, and never use it.
 */
#ifndef UWORK_KERNEL_UW_KERNEL_JIFFIES_H
#define UWORK_KERNEL_UW_KERNEL_JIFFIES_H

#include "uw_kernel.h"

#ifndef HZ
#define HZ 1000
#endif
#define UW_KERNEL_NS_PER_JIFFY (1000000000ULL / HZ)

/* The clock itself, in ticks. */
static inline unsigned long uw_kernel_jiffies(void)
{
	return (unsigned long)(uw_kernel_now_ns() / UW_KERNEL_NS_PER_JIFFY);
}

#ifdef __cplusplus
extern "C" {
#endif
extern volatile unsigned long jiffies __asm__("uw_kernel_tick_count");
/* Starts the thread, with this number of ticks per second, if an object of the process reads the variable. */
void uw_kernel_tick_if_read(unsigned long hz);
#ifdef __cplusplus
}
#endif

/* Once for each program or library that includes this header, except for uwork itself: after it is loaded. */
#ifndef UW_KERNEL_LIBRARY
__attribute__((weak, visibility("hidden"), constructor(102))) void uw_kernel_begin_ticks(void);
__attribute__((weak, visibility("hidden"), constructor(102))) void uw_kernel_begin_ticks(void)
{
	uw_kernel_tick_if_read(HZ);
}
#endif

#endif
