// SPDX-License-Identifier: MIT OR Apache-2.0
/* Delays of every length, and arithmetic with jiffies and ktime_t. */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/time64.h>
#include <linux/timekeeping.h>

struct sample {
	unsigned long jiffies;
	ktime_t time;
};

static unsigned long age(unsigned long jiffies, unsigned long now)
{
	return time_after(now, jiffies) ? now - jiffies : 0;
}

static int __init delays_init(void)
{
	struct sample sample = { .jiffies = jiffies, .time = ktime_get() };
	unsigned long timeout = jiffies + HZ * 86400;
	struct timespec64 ts;
	u64 start_ns, end_ns;
	u32 rem;
	s64 us;

	start_ns = ktime_get_ns();
	ndelay(100);
	udelay(10);
	mdelay(1);
	usleep_range(100, 200);
	fsleep(50);
	msleep(3);
	if (msleep_interruptible(1))
		return -EINTR;
	ssleep(0);
	set_current_state(TASK_UNINTERRUPTIBLE);
	schedule_timeout(msecs_to_jiffies(5));
	schedule_timeout_uninterruptible(1);
	end_ns = ktime_get_ns();

	us = ktime_us_delta(ktime_get(), sample.time);
	if (us < 9000 || end_ns - start_ns < 9 * NSEC_PER_MSEC)
		return -EINVAL;
	if (!time_before(jiffies, timeout) || time_after_eq(jiffies, timeout))
		return -ETIMEDOUT;
	if (!age(sample.jiffies, jiffies) || age(100, 50) || !time_after(5UL, ULONG_MAX - 5))
		return -EINVAL;
	if (!time_in_range(sample.jiffies, sample.jiffies, timeout) || !time_is_after_jiffies(timeout))
		return -EINVAL;
	if (msecs_to_jiffies(0) || jiffies_to_msecs(HZ) != 1000 || usecs_to_jiffies(1000000) != HZ ||
	    jiffies_to_usecs(HZ) != 1000000 || nsecs_to_jiffies(NSEC_PER_SEC) != HZ)
		return -EINVAL;
	if (get_jiffies_64() < sample.jiffies)
		return -EINVAL;
	if (div_u64_rem(1000000007ULL, 1000, &rem) != 1000000 || rem != 7 || div64_s64(-9, 2) != -4 ||
	    mul_u64_u32_shr(1ULL << 40, 3, 2) != 3ULL << 38)
		return -EINVAL;
	if (ktime_compare(ktime_add_ms(0, 5), ms_to_ktime(5)) || ktime_to_ms(ktime_sub(ktime_set(1, 0), 0)) != 1000 ||
	    !ktime_before(sample.time, ktime_get()))
		return -EINVAL;
	ktime_get_real_ts64(&ts);
	if (ts.tv_nsec < 0 || ts.tv_nsec >= NSEC_PER_SEC || ktime_get_real_seconds() < 1000000000)
		return -EINVAL;
	pr_info("delays: passed\n");
	return 0;
}

static void __exit delays_exit(void)
{
}

module_init(delays_init);
module_exit(delays_exit);
MODULE_LICENSE("GPL");
