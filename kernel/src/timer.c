/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Timers: delayed items on the BH queue. */
#include <linux/timer.h>
#include "ticks.h"

void uw_kernel_timer_run(struct uw_work *item)
{
	struct timer_list *timer = UW_CONTAINER_OF(uw_to_delayed_work(item), struct timer_list, uw_item);

	uw_tick();
	timer->function(timer);
}

int uw_kernel_timer_arm(struct timer_list *timer, unsigned long hz, int cpu)
{
	struct uw_queue *queue = uw_system_queue(UW_SYSTEM_BH);
	uint64_t tick_ns = 1000000000 / hz;
	long left = (long)(timer->expires - (unsigned long)(uw_kernel_now_ns() / tick_ns));
	uint64_t ticks = left > 0 ? (uint64_t)left : 0;
	uint64_t delay_ns = ticks > INT64_MAX / tick_ns ? INT64_MAX : ticks * tick_ns;
	int answer;

	if (cpu < 0)
		answer = uw_mod_delayed_work(queue, &timer->uw_item, delay_ns);
	else
		answer = uw_mod_delayed_work_on(queue, cpu, &timer->uw_item, delay_ns);
	if (answer < 0)
		uw_kernel_complain(answer);
	return answer == 0;
}
