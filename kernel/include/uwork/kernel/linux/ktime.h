/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Times and clocks, with nanosecond resolution. */
#ifndef UWORK_KERNEL_LINUX_KTIME_H
#define UWORK_KERNEL_LINUX_KTIME_H

#include "../uw_kernel.h"
#include <linux/types.h>

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

#endif
