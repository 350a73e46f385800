/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Time in ticks. uw_kernel_time.h defines UW_KERNEL_ASKS to find out whether the program has a
 * header of this name; then this header only says that it is the library's.
 */
#ifdef UW_KERNEL_ASKS
#define UW_KERNEL_JIFFIES_H_IS_OURS
#endif
#if !defined(UWORK_KERNEL_LINUX_JIFFIES_H) && !defined(UW_KERNEL_ASKS)
#define UWORK_KERNEL_LINUX_JIFFIES_H

#include <linux/types.h>

#include "../uw_kernel_jiffies.h"

#define MAX_JIFFY_OFFSET ((LONG_MAX >> 1) - 1)
#ifndef LONG_MAX
#define LONG_MAX __LONG_MAX__
#endif

/* Saturates at the end of the clock's range. */
static inline uint64_t uw_kernel_jiffies_to_ns(unsigned long ticks)
{
	return ticks > UINT64_MAX / UW_KERNEL_NS_PER_JIFFY ? UINT64_MAX : ticks * UW_KERNEL_NS_PER_JIFFY;
}

static inline u64 get_jiffies_64(void)
{
	return uw_kernel_jiffies();
}

#define jiffies_64 get_jiffies_64()

/* Rounded up, because a timeout must not be too short. A negative int means no limit. */
static inline unsigned long msecs_to_jiffies(unsigned int ms)
{
	if ((int)ms < 0)
		return MAX_JIFFY_OFFSET;
	return (unsigned long)(((u64)ms * HZ + 999) / 1000);
}

static inline unsigned long secs_to_jiffies(unsigned int secs)
{
	return (unsigned long)secs * HZ;
}

static inline unsigned long usecs_to_jiffies(unsigned int us)
{
	return (unsigned long)(((u64)us * HZ + 999999) / 1000000);
}

static inline unsigned long nsecs_to_jiffies(u64 ns)
{
	return (unsigned long)(ns / UW_KERNEL_NS_PER_JIFFY);
}

static inline unsigned int jiffies_to_msecs(unsigned long ticks)
{
	return (unsigned int)((u64)ticks * 1000 / HZ);
}

static inline unsigned int jiffies_to_usecs(unsigned long ticks)
{
	return (unsigned int)((u64)ticks * 1000000 / HZ);
}

static inline u64 jiffies_to_nsecs(unsigned long ticks)
{
	return uw_kernel_jiffies_to_ns(ticks);
}

#define time_after(a, b) ((long)((b) - (a)) < 0)
#define time_before(a, b) time_after(b, a)
#define time_after_eq(a, b) ((long)((a) - (b)) >= 0)
#define time_before_eq(a, b) time_after_eq(b, a)
#define time_in_range(a, b, c) (time_after_eq(a, b) && time_before_eq(a, c))
#define time_is_before_jiffies(a) time_after(jiffies, a)
#define time_is_after_jiffies(a) time_before(jiffies, a)
#define time_is_before_eq_jiffies(a) time_after_eq(jiffies, a)
#define time_is_after_eq_jiffies(a) time_before_eq(jiffies, a)

#define TICK_NSEC UW_KERNEL_NS_PER_JIFFY
#define INITIAL_JIFFIES 0UL
#define time_in_range_open(a, b, c) (time_after_eq(a, b) && time_before(a, c))
#define time_after64(a, b) ((s64)((u64)(b) - (u64)(a)) < 0)
#define time_before64(a, b) time_after64(b, a)
#define time_after_eq64(a, b) ((s64)((u64)(a) - (u64)(b)) >= 0)
#define time_before_eq64(a, b) time_after_eq64(b, a)
#define time_in_range64(a, b, c) (time_after_eq64(a, b) && time_before_eq64(a, c))
#define time_is_before_jiffies64(a) time_after64(get_jiffies_64(), a)
#define time_is_after_jiffies64(a) time_before64(get_jiffies_64(), a)

static inline u64 nsecs_to_jiffies64(u64 ns)
{
	return ns / UW_KERNEL_NS_PER_JIFFY;
}

static inline unsigned int jiffies_delta_to_msecs(long delta)
{
	return jiffies_to_msecs(delta > 0 ? (unsigned long)delta : 0);
}

static inline u64 jiffies64_to_nsecs(u64 ticks)
{
	return ticks * UW_KERNEL_NS_PER_JIFFY;
}

/* The unit of the system's interfaces: a hundredth of a second. */
#ifndef USER_HZ
#define USER_HZ 100
#endif

static inline unsigned long jiffies_to_clock_t(unsigned long ticks)
{
	return ticks / (HZ / USER_HZ);
}

static inline unsigned long clock_t_to_jiffies(unsigned long clock_ticks)
{
	return clock_ticks * (HZ / USER_HZ);
}

#endif
