/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Timers with nanosecond resolution: delayed items on the BH queue. */
#include <linux/hrtimer.h>
#include "ticks.h"

void uw_kernel_hrtimer_arm(struct hrtimer *timer, bool pinned)
{
	struct uw_queue *queue = uw_system_queue(UW_SYSTEM_BH);
	ktime_t left = hrtimer_expires_remaining(timer);
	uint64_t delay_ns = left > 0 ? (uint64_t)left : 0;
	int answer;

	if (pinned)
		answer = uw_mod_delayed_work_on(queue, uw_kernel_this_cpu(), &timer->uw_item, delay_ns);
	else
		answer = uw_mod_delayed_work(queue, &timer->uw_item, delay_ns);
	if (answer < 0)
		uw_kernel_complain(answer);
}

void uw_kernel_hrtimer_run(struct uw_work *item)
{
	struct hrtimer *timer = UW_CONTAINER_OF(uw_to_delayed_work(item), struct hrtimer, uw_item);
	ktime_t left;

	uw_tick();
	if (timer->function(timer) == HRTIMER_NORESTART)
		return;
	/*
	 * Fails without a report if another thread has armed the timer meanwhile, or is cancelling
	 * it. Both are correct uses.
	 */
	left = hrtimer_expires_remaining(timer);
	uw_queue_delayed_work(uw_system_queue(UW_SYSTEM_BH), &timer->uw_item, left > 0 ? (uint64_t)left : 0);
}
