// SPDX-License-Identifier: MIT OR Apache-2.0
/* A thread that sleeps on a wait queue until it has a request or has to stop. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

static DECLARE_WAIT_QUEUE_HEAD(request_wq);
static DECLARE_WAIT_QUEUE_HEAD(answer_wq);
static DEFINE_SPINLOCK(lock);
static int requests, answers;

static bool take_request(void)
{
	unsigned long flags;
	bool taken = false;

	spin_lock_irqsave(&lock, flags);
	if (requests > 0) {
		requests--;
		taken = true;
	}
	spin_unlock_irqrestore(&lock, flags);
	return taken;
}

static int server(void *data)
{
	int *served = data;

	while (!kthread_should_stop()) {
		wait_event_interruptible(request_wq, READ_ONCE(requests) || kthread_should_stop());
		while (take_request()) {
			(*served)++;
			WRITE_ONCE(answers, answers + 1);
			wake_up(&answer_wq);
		}
	}
	return *served;
}

static int __init kthreads_init(void)
{
	struct task_struct *task;
	int served = 0, i, ret;

	task = kthread_run(server, &served, "server/%d", 0);
	if (IS_ERR(task))
		return PTR_ERR(task);

	for (i = 1; i <= 10; i++) {
		spin_lock_irq(&lock);
		requests++;
		spin_unlock_irq(&lock);
		wake_up_interruptible(&request_wq);
		if (!wait_event_timeout(answer_wq, READ_ONCE(answers) == i, 86400 * HZ)) {
			kthread_stop(task);
			return -ETIMEDOUT;
		}
	}
	ret = kthread_stop(task);
	if (ret != 10) {
		pr_err("failed: %d served\n", ret);
		return -EINVAL;
	}

	task = kthread_create(server, &served, "never");
	if (IS_ERR(task))
		return PTR_ERR(task);
	/* The function of a thread that was never woken does not run. */
	if (kthread_stop(task) != -EINTR)
		return -EINVAL;
	pr_info("passed\n");
	return 0;
}

static void __exit kthreads_exit(void)
{
}

module_init(kthreads_init)
module_exit(kthreads_exit)

MODULE_LICENSE("GPL");
