// SPDX-License-Identifier: MIT OR Apache-2.0
/* Completions: on the stack, with a timeout, used again, and for several waiters. */
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/workqueue.h>

static DECLARE_COMPLETION(setup_done);
static DECLARE_COMPLETION(go);
static atomic_t waited = ATOMIC_INIT(0);

struct setup {
	struct work_struct work;
	struct completion *done;
};

static void setup_fn(struct work_struct *work)
{
	struct setup *setup = container_of(work, struct setup, work);

	complete(setup->done);
}

static int waiter(void *unused)
{
	wait_for_completion(&go);
	atomic_inc(&waited);
	return 0;
}

static int __init completions_init(void)
{
	DECLARE_COMPLETION_ONSTACK(done);
	struct task_struct *tasks[3];
	struct setup setup = { .done = &done };
	unsigned long left;
	int i;

	INIT_WORK_ONSTACK(&setup.work, setup_fn);
	schedule_work(&setup.work);
	left = wait_for_completion_timeout(&done, 86400 * HZ);
	flush_work(&setup.work);
	destroy_work_on_stack(&setup.work);
	if (!left)
		return -ETIMEDOUT;

	reinit_completion(&done);
	if (try_wait_for_completion(&done) || completion_done(&done))
		return -EINVAL;
	if (wait_for_completion_timeout(&done, msecs_to_jiffies(2)))
		return -EINVAL;
	if (wait_for_completion_interruptible_timeout(&done, 1))
		return -EINVAL;

	for (i = 0; i < ARRAY_SIZE(tasks); i++) {
		tasks[i] = kthread_run(waiter, NULL, "waiter/%d", i);
		if (IS_ERR(tasks[i]))
			return PTR_ERR(tasks[i]);
	}
	complete_all(&go);
	for (i = 0; i < ARRAY_SIZE(tasks); i++)
		kthread_stop(tasks[i]);

	complete(&setup_done);
	if (wait_for_completion_killable(&setup_done))
		return -EINTR;
	/* A thread that was told to stop before its function began does not run it. */
	if (atomic_read(&waited) > 3)
		return -EINVAL;
	pr_info("passed\n");
	return 0;
}
module_init(completions_init);

static void __exit completions_exit(void)
{
}
module_exit(completions_exit);

MODULE_LICENSE("GPL");
