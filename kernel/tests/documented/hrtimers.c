// SPDX-License-Identifier: MIT OR Apache-2.0
/* High-resolution timers: periodic, once, and cancelled. */
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/wait.h>

static struct hrtimer periodic, once, never;
static DECLARE_WAIT_QUEUE_HEAD(wq);
static int ticks, shots;
static ktime_t started;

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	WRITE_ONCE(ticks, ticks + 1);
	wake_up(&wq);
	if (ticks == 5)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ms_to_ktime(1));
	return HRTIMER_RESTART;
}

static enum hrtimer_restart shoot(struct hrtimer *timer)
{
	WRITE_ONCE(shots, shots + 1);
	wake_up(&wq);
	return HRTIMER_NORESTART;
}

static int __init hrtimers_init(void)
{
	started = ktime_get();
	hrtimer_setup(&periodic, tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	hrtimer_setup(&once, shoot, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	hrtimer_init(&never, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	never.function = shoot;

	hrtimer_start(&periodic, ktime_set(0, NSEC_PER_MSEC), HRTIMER_MODE_REL);
	hrtimer_start(&once, ktime_add_us(started, 500), HRTIMER_MODE_ABS);
	hrtimer_start_range_ns(&never, ktime_set(86400, 0), NSEC_PER_SEC, HRTIMER_MODE_REL);
	if (!hrtimer_active(&never) || ktime_to_ns(hrtimer_get_remaining(&never)) < NSEC_PER_SEC) {
		hrtimer_cancel(&periodic);
		hrtimer_cancel(&once);
		hrtimer_cancel(&never);
		return -EINVAL;
	}
	return 0;
}

static void __exit hrtimers_exit(void)
{
	wait_event(wq, READ_ONCE(ticks) == 5 && READ_ONCE(shots) == 1);
	hrtimer_cancel(&periodic);
	hrtimer_cancel(&once);
	if (hrtimer_try_to_cancel(&never) == 1 && ktime_ms_delta(ktime_get(), started) >= 5)
		pr_info("hrtimers: passed\n");
}

module_init(hrtimers_init);
module_exit(hrtimers_exit);
MODULE_LICENSE("GPL");
