// SPDX-License-Identifier: MIT OR Apache-2.0
/* A timer that arms itself again, and one that is deleted before it expires. */
#include <linux/module.h>
#include <linux/timer.h>
#include <linux/jiffies.h>
#include <linux/completion.h>

#define BEATS 3

struct beat {
	struct timer_list timer;
	unsigned long period;
	unsigned int count;
	struct completion done;
};

static struct beat beat;
static struct timer_list never;

static void beat_fn(struct timer_list *t)
{
	struct beat *b = from_timer(b, t, timer);

	if (++b->count == BEATS)
		complete(&b->done);
	else
		mod_timer(&b->timer, jiffies + b->period);
}

static void never_fn(struct timer_list *unused)
{
	pr_err("failed: a deleted timer expired\n");
}

static int __init timers_init(void)
{
	beat.period = msecs_to_jiffies(5);
	init_completion(&beat.done);
	timer_setup(&beat.timer, beat_fn, 0);
	timer_setup(&never, never_fn, TIMER_DEFERRABLE);

	never.expires = jiffies + 86400 * HZ;
	add_timer(&never);
	mod_timer(&beat.timer, jiffies + beat.period);
	if (!timer_pending(&never))
		return -EINVAL;
	return 0;
}

static void __exit timers_exit(void)
{
	wait_for_completion(&beat.done);
	del_timer_sync(&beat.timer);
	if (timer_delete_sync(&never) != 1)
		pr_err("failed: the timer was not pending\n");
	if (beat.count == BEATS)
		pr_info("passed\n");
}

module_init(timers_init);
module_exit(timers_exit);

MODULE_DESCRIPTION("timer_list");
MODULE_LICENSE("GPL");
