// SPDX-License-Identifier: MIT OR Apache-2.0
/* Signals to a kthread, by number. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/kthread.h>
#include <linux/sched/signal.h>
#include <linux/delay.h>

static struct task_struct *task;
static int caught;

static int fn(void *unused)
{
	allow_signal(SIGUSR1);
	while (!kthread_should_stop()) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (!signal_pending(current) && !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
		if (signal_pending(current)) {
			flush_signals(current);
			WRITE_ONCE(caught, 1);
		}
	}
	return 0;
}

static int __init signals_init(void)
{
	task = kthread_run(fn, NULL, "catcher");
	if (IS_ERR(task))
		return PTR_ERR(task);
	while (!READ_ONCE(caught)) {
		send_sig(SIGUSR1, task, 0);
		msleep(1);
	}
	pr_info("passed\n");
	return 0;
}

static void __exit signals_exit(void)
{
	kthread_stop(task);
}

module_init(signals_init);
module_exit(signals_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("signals");
