// SPDX-License-Identifier: MIT OR Apache-2.0
/* Sleeping and waking by hand, signals for a thread, parking. */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/signal.h>
#include <linux/resource.h>

static struct task_struct *sleeper;
static int condition;
static DECLARE_COMPLETION(awake);
static DECLARE_COMPLETION(ready);

static int sleeper_fn(void *unused)
{
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (READ_ONCE(condition))
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	complete(&awake);
	while (!kthread_should_stop()) {
		if (kthread_should_park())
			kthread_parkme();
		schedule_timeout_interruptible(HZ);
	}
	return 0;
}

static int __sched signalled_fn(void *unused)
{
	int ret = 0;

	allow_signal(SIGKILL);
	allow_signal(SIGUSR1);
	complete(&ready);
	while (!kthread_should_stop()) {
		if (signal_pending(current)) {
			flush_signals(current);
			complete(&awake);
			ret = 1;
		}
		set_current_state(TASK_INTERRUPTIBLE);
		if (!kthread_should_stop() && !signal_pending(current))
			schedule();
		__set_current_state(TASK_RUNNING);
	}
	return ret;
}

static int __init sleepers_init(void)
{
	struct task_struct *task;
	int ret;

	sleeper = kthread_create(sleeper_fn, NULL, "sleeper");
	if (IS_ERR(sleeper))
		return PTR_ERR(sleeper);
	wake_up_process(sleeper);
	WRITE_ONCE(condition, 1);
	wake_up_process(sleeper);
	wait_for_completion(&awake);
	ret = kthread_park(sleeper);
	if (ret)
		return ret;
	kthread_unpark(sleeper);
	set_user_nice(sleeper, 5);
	if (task_nice(sleeper) != 5)
		pr_info("no permission to set the nice value\n");

	reinit_completion(&awake);
	task = kthread_run(signalled_fn, NULL, "signalled");
	if (IS_ERR(task))
		return PTR_ERR(task);
	wait_for_completion(&ready);
	send_sig(SIGUSR1, task, 1);
	wait_for_completion(&awake);
	if (kthread_stop(task) != 1)
		return -EINVAL;
	return 0;
}

static void __exit sleepers_exit(void)
{
	if (!kthread_stop(sleeper))
		pr_info("sleepers: passed\n");
}

module_init(sleepers_init);
module_exit(sleepers_exit);
MODULE_LICENSE("GPL");
