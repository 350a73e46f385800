// SPDX-License-Identifier: MIT OR Apache-2.0
/* Clocks, dates and delays. */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/sched/clock.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <linux/timekeeping.h>

static int __init dates_init(void)
{
	struct timespec64 real, boot;
	unsigned long timeout = jiffies + msecs_to_jiffies(20);
	ktime_t begin = ktime_get(), took;
	u64 ns = local_clock();
	u32 rem;
	struct tm tm, again;

	while (time_before(jiffies, timeout))
		usleep_range(500, 1000);
	took = ktime_sub(ktime_get(), begin);
	/* How long depends on how late the ticks are. */
	if (ktime_to_ns(took) <= 0 || local_clock() <= ns)
		return -ETIME;
	ktime_get_real_ts64(&real);
	ktime_get_boottime_ts64(&boot);
	if (real.tv_sec < mktime64(2020, 1, 1, 0, 0, 0))
		pr_notice("the clock is wrong\n");
	time64_to_tm(mktime64(2024, 2, 29, 12, 30, 15), 0, &tm);
	if (tm.tm_year != 124 || tm.tm_mon != 1 || tm.tm_mday != 29 || tm.tm_hour != 12)
		return -EINVAL;
	ns = div_u64_rem(ktime_to_ns(took), NSEC_PER_SEC, &rem);
	pr_info("%llu.%09u s, up %lld, %u ms in jiffies: %lu\n", ns, rem, (long long)boot.tv_sec, jiffies_to_msecs(HZ),
		usecs_to_jiffies(1500));
	/* Before 1970, the end of a leap century, and an offset into the day before. */
	time64_to_tm(-1, 0, &tm);
	if (tm.tm_year != 69 || tm.tm_mon != 11 || tm.tm_mday != 31 || tm.tm_sec != 59 || tm.tm_wday != 3 || tm.tm_yday != 364)
		return -EINVAL;
	time64_to_tm(mktime64(2000, 12, 31, 0, 0, 0), 0, &tm);
	if (tm.tm_yday != 365 || tm.tm_wday != 0 || tm.tm_year != 100)
		return -EINVAL;
	time64_to_tm(mktime64(2100, 3, 1, 0, 0, 0), -3600, &tm);
	if (tm.tm_mon != 1 || tm.tm_mday != 28 || tm.tm_hour != 23 || tm.tm_yday != 58)
		return -EINVAL;
	/* No member keeps its former value. */
	memset(&again, 0xff, sizeof(again));
	time64_to_tm(mktime64(2100, 3, 1, 0, 0, 0), -3600, &again);
	if (memcmp(&tm, &again, sizeof(tm)) != 0)
		return -EINVAL;
	pr_info("passed\n");
	udelay(5);
	fsleep(10);
	ssleep(0);
	return 0;
}

static void __exit dates_exit(void)
{
}

module_init(dates_init);
module_exit(dates_exit);
MODULE_LICENSE("Dual MIT/GPL");
