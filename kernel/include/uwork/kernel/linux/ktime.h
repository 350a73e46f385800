/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Times and clocks, with nanosecond resolution. */
#ifndef UWORK_KERNEL_LINUX_KTIME_H
#define UWORK_KERNEL_LINUX_KTIME_H

#include "../uw_kernel.h"
#include "../uw_kernel_string.h"
#include <linux/types.h>

/* The C library's structure, so that a program may use both; tm_year is an int. */
#if defined(__has_include) && !defined(__cplusplus)
#if __has_include(<bits/types/struct_tm.h>)
#define UW_KERNEL_HAS_TM
#endif
#endif
#ifdef UW_KERNEL_HAS_TM
#include <bits/types/struct_tm.h>
#else
#include <time.h>
#endif

struct timespec64 {
	time64_t tv_sec;
	long tv_nsec;
};

/* As in <time.h>, which is not included: its functions have names that modules use. */
#ifndef CLOCK_REALTIME
#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC 1
#endif
#ifndef CLOCK_MONOTONIC_RAW
#define CLOCK_MONOTONIC_RAW 4
#define CLOCK_REALTIME_COARSE 5
#define CLOCK_MONOTONIC_COARSE 6
#define CLOCK_BOOTTIME 7
#endif
#ifndef CLOCK_TAI
#define CLOCK_TAI 11
#endif

#define NSEC_PER_USEC 1000L
#define NSEC_PER_MSEC 1000000L
#define NSEC_PER_SEC 1000000000L
#define USEC_PER_MSEC 1000L
#define USEC_PER_SEC 1000000L
#define MSEC_PER_SEC 1000L
#define KTIME_MAX ((s64)~((u64)1 << 63))

static inline ktime_t ktime_get(void)
{
	return (ktime_t)uw_kernel_now_ns();
}

static inline u64 ktime_get_ns(void)
{
	return uw_kernel_now_ns();
}

static inline ktime_t ktime_get_real(void)
{
	return (ktime_t)uw_kernel_clock_ns(0);
}

static inline u64 ktime_get_real_ns(void)
{
	return uw_kernel_clock_ns(0);
}

static inline ktime_t ktime_get_raw(void)
{
	return (ktime_t)uw_kernel_clock_ns(4);
}

static inline u64 ktime_get_raw_ns(void)
{
	return uw_kernel_clock_ns(4);
}

static inline ktime_t ktime_get_boottime(void)
{
	return (ktime_t)uw_kernel_clock_ns(7);
}

static inline u64 ktime_get_boottime_ns(void)
{
	return uw_kernel_clock_ns(7);
}

static inline u64 ktime_get_mono_fast_ns(void)
{
	return uw_kernel_now_ns();
}

static inline time64_t ktime_get_seconds(void)
{
	return ktime_get() / NSEC_PER_SEC;
}

static inline time64_t ktime_get_real_seconds(void)
{
	return ktime_get_real() / NSEC_PER_SEC;
}

static inline u64 local_clock(void)
{
	return uw_kernel_now_ns();
}

static inline u64 sched_clock(void)
{
	return uw_kernel_now_ns();
}

static inline ktime_t ktime_set(s64 secs, unsigned long nsecs)
{
	return secs * NSEC_PER_SEC + (s64)nsecs;
}

#define ktime_add(a, b) ((a) + (b))
#define ktime_sub(a, b) ((a) - (b))

static inline ktime_t ktime_add_ns(ktime_t kt, u64 ns)
{
	return kt + (s64)ns;
}

static inline ktime_t ktime_sub_ns(ktime_t kt, u64 ns)
{
	return kt - (s64)ns;
}

static inline ktime_t ktime_add_us(ktime_t kt, u64 us)
{
	return kt + (s64)us * NSEC_PER_USEC;
}

static inline ktime_t ktime_add_ms(ktime_t kt, u64 ms)
{
	return kt + (s64)ms * NSEC_PER_MSEC;
}

static inline s64 ktime_to_ns(ktime_t kt)
{
	return kt;
}

static inline s64 ktime_to_us(ktime_t kt)
{
	return kt / NSEC_PER_USEC;
}

static inline s64 ktime_to_ms(ktime_t kt)
{
	return kt / NSEC_PER_MSEC;
}

static inline ktime_t ns_to_ktime(u64 ns)
{
	return (ktime_t)ns;
}

static inline ktime_t us_to_ktime(u64 us)
{
	return (ktime_t)us * NSEC_PER_USEC;
}

static inline ktime_t ms_to_ktime(u64 ms)
{
	return (ktime_t)ms * NSEC_PER_MSEC;
}

static inline s64 ktime_us_delta(ktime_t later, ktime_t earlier)
{
	return ktime_to_us(later - earlier);
}

static inline s64 ktime_ms_delta(ktime_t later, ktime_t earlier)
{
	return ktime_to_ms(later - earlier);
}

static inline int ktime_compare(ktime_t a, ktime_t b)
{
	return a < b ? -1 : a > b;
}

static inline bool ktime_after(ktime_t a, ktime_t b)
{
	return a > b;
}

static inline bool ktime_before(ktime_t a, ktime_t b)
{
	return a < b;
}

static inline struct timespec64 ns_to_timespec64(s64 ns)
{
	struct timespec64 ts;

	ts.tv_sec = ns / NSEC_PER_SEC;
	ts.tv_nsec = (long)(ns % NSEC_PER_SEC);
	/* tv_nsec is never negative. */
	if (ts.tv_nsec < 0) {
		ts.tv_sec--;
		ts.tv_nsec += NSEC_PER_SEC;
	}
	return ts;
}

static inline void ktime_get_ts64(struct timespec64 *ts)
{
	*ts = ns_to_timespec64(ktime_get());
}

static inline void ktime_get_real_ts64(struct timespec64 *ts)
{
	*ts = ns_to_timespec64(ktime_get_real());
}

static inline s64 timespec64_to_ns(const struct timespec64 *ts)
{
	return ts->tv_sec * NSEC_PER_SEC + ts->tv_nsec;
}

#define PSEC_PER_SEC 1000000000000LL
#define FSEC_PER_SEC 1000000000000000LL
#define KTIME_MIN (-KTIME_MAX - 1)
#define KTIME_SEC_MAX (KTIME_MAX / NSEC_PER_SEC)

static inline s64 ktime_divns(ktime_t kt, s64 divisor)
{
	return kt / divisor;
}

static inline ktime_t ktime_sub_us(ktime_t kt, u64 us)
{
	return kt - (s64)us * NSEC_PER_USEC;
}

static inline ktime_t ktime_sub_ms(ktime_t kt, u64 ms)
{
	return kt - (s64)ms * NSEC_PER_MSEC;
}

/* Saturates at the greatest time. */
static inline ktime_t ktime_add_safe(ktime_t a, ktime_t b)
{
	ktime_t sum;

	return __builtin_add_overflow(a, b, &sum) || sum < 0 ? KTIME_MAX : sum;
}

#define ktime_to_timespec64(kt) ns_to_timespec64(kt)

static inline ktime_t timespec64_to_ktime(struct timespec64 ts)
{
	return timespec64_to_ns(&ts);
}

static inline void ktime_get_raw_ts64(struct timespec64 *ts)
{
	*ts = ns_to_timespec64(ktime_get_raw());
}

static inline void ktime_get_boottime_ts64(struct timespec64 *ts)
{
	*ts = ns_to_timespec64(ktime_get_boottime());
}

static inline time64_t ktime_get_boottime_seconds(void)
{
	return ktime_get_boottime() / NSEC_PER_SEC;
}

static inline ktime_t ktime_get_clocktai(void)
{
	return (ktime_t)uw_kernel_clock_ns(11);
}

/* The time of the last tick: cheaper, and at most a tick old. */
static inline ktime_t ktime_get_coarse(void)
{
	return (ktime_t)uw_kernel_clock_ns(6);
}

static inline u64 ktime_get_coarse_ns(void)
{
	return uw_kernel_clock_ns(6);
}

static inline void ktime_get_coarse_ts64(struct timespec64 *ts)
{
	*ts = ns_to_timespec64(ktime_get_coarse());
}

static inline void ktime_get_coarse_real_ts64(struct timespec64 *ts)
{
	*ts = ns_to_timespec64((s64)uw_kernel_clock_ns(5));
}

static inline u64 ktime_get_real_fast_ns(void)
{
	return ktime_get_real_ns();
}

static inline struct timespec64 timespec64_add(struct timespec64 a, struct timespec64 b)
{
	return ns_to_timespec64(timespec64_to_ns(&a) + timespec64_to_ns(&b));
}

static inline struct timespec64 timespec64_sub(struct timespec64 a, struct timespec64 b)
{
	return ns_to_timespec64(timespec64_to_ns(&a) - timespec64_to_ns(&b));
}

/* Seconds since 1970 of a date of the Gregorian calendar, in the time zone of the date. */
static inline time64_t mktime64(unsigned int year, unsigned int month, unsigned int day, unsigned int hour,
				unsigned int minute, unsigned int second)
{
	/* The year begins in March, so that the day of a leap year is its last one. */
	s64 years = (s64)year - (month <= 2);
	s64 months = month <= 2 ? month + 9 : month - 3;
	s64 days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + (s64)day - 719469;

	return ((days * 24 + hour) * 60 + minute) * 60 + second;
}

/* The date of that many seconds since 1970, plus an offset in seconds. */
static inline void time64_to_tm(time64_t seconds, int offset, struct tm *result)
{
	static const unsigned short before_month[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 };
	s64 total = seconds + offset, days = total / 86400;
	int rest = (int)(total % 86400), leap;
	s64 of_era, era, year, from_march, month;

	/* The C library's structure has more members. */
	memset(result, 0, sizeof(*result));
	if (rest < 0) {
		rest += 86400;
		days--;
	}
	/* Days since March 1 of the year 0, in eras of 400 years. The year begins in March. */
	era = (days + 719468 >= 0 ? days + 719468 : days + 719468 - 146096) / 146097;
	of_era = days + 719468 - era * 146097;
	year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	from_march = of_era - (365 * year + year / 4 - year / 100);
	month = (5 * from_march + 2) / 153;
	result->tm_mday = (int)(from_march - (153 * month + 2) / 5) + 1;
	result->tm_mon = (int)(month < 10 ? month + 2 : month - 10);
	year += era * 400 + (month >= 10);
	leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	result->tm_year = (int)(year - 1900);
	result->tm_yday = before_month[result->tm_mon] + result->tm_mday - 1 + (leap && result->tm_mon > 1);
	/* January 1, 1970 was a Thursday. */
	result->tm_wday = (int)((days % 7 + 11) % 7);
	result->tm_hour = rest / 3600;
	result->tm_min = rest / 60 % 60;
	result->tm_sec = rest % 60;
}

static inline int timespec64_compare(const struct timespec64 *a, const struct timespec64 *b)
{
	return ktime_compare(timespec64_to_ns(a), timespec64_to_ns(b));
}

static inline u64 cpu_clock(int cpu)
{
	(void)cpu;
	return local_clock();
}

#define sched_clock_cpu(cpu) cpu_clock(cpu)

static inline bool timespec64_equal(const struct timespec64 *a, const struct timespec64 *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static inline bool timespec64_valid(const struct timespec64 *ts)
{
	return ts->tv_sec >= 0 && ts->tv_nsec >= 0 && ts->tv_nsec < NSEC_PER_SEC;
}

static inline void set_normalized_timespec64(struct timespec64 *ts, time64_t seconds, s64 ns)
{
	struct timespec64 rest = ns_to_timespec64(ns);

	ts->tv_sec = seconds + rest.tv_sec;
	ts->tv_nsec = rest.tv_nsec;
}

static inline u64 ktime_get_clocktai_ns(void)
{
	return (u64)ktime_get_clocktai();
}

static inline ktime_t ktime_mono_to_real(ktime_t mono)
{
	return mono + (ktime_get_real() - ktime_get());
}

#endif
