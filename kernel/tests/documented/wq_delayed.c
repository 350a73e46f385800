// SPDX-License-Identifier: MIT OR Apache-2.0
/* A poll that queues itself again, a watchdog that is pushed back, and one that is cancelled. */
#include <linux/module.h>
#include <linux/workqueue.h>
#include <linux/jiffies.h>
#include <linux/completion.h>

static void poll_fn(struct work_struct *work);
static void timeout_fn(struct work_struct *work);

static DECLARE_DELAYED_WORK(poll_work, poll_fn);
static DECLARE_DEFERRABLE_WORK(lazy_work, timeout_fn);
static struct delayed_work timeout_work;
static DECLARE_COMPLETION(polled);
static unsigned int polls, timeouts;

static void poll_fn(struct work_struct *work)
{
	struct delayed_work *dwork = to_delayed_work(work);

	mod_delayed_work(system_wq, &timeout_work, 86400 * HZ);
	if (++polls == 5)
		complete(&polled);
	else
		schedule_delayed_work(dwork, msecs_to_jiffies(1));
}

static void timeout_fn(struct work_struct *work)
{
	timeouts++;
}

static int __init poll_init(void)
{
	INIT_DELAYED_WORK(&timeout_work, timeout_fn);
	schedule_delayed_work(&timeout_work, round_jiffies_relative(86400 * HZ));
	schedule_delayed_work(&lazy_work, 86400 * HZ);
	schedule_delayed_work(&poll_work, 0);
	wait_for_completion(&polled);
	if (!delayed_work_pending(&timeout_work))
		return -EINVAL;
	/* Runs the function now. */
	flush_delayed_work(&timeout_work);
	if (timeouts != 1)
		return -EINVAL;
	return 0;
}

static void __exit poll_exit(void)
{
	cancel_delayed_work_sync(&poll_work);
	if (!cancel_delayed_work(&lazy_work))
		pr_err("failed: the deferrable item was not pending\n");
	if (!cancel_delayed_work_sync(&timeout_work) && timeouts == 1)
		pr_info("delayed: passed\n");
}

module_init(poll_init);
module_exit(poll_exit);
MODULE_LICENSE("GPL");
