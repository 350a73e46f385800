// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread of the program that is cancelled (pthread_cancel) inside functions of the headers: they are no cancellation
 * points, and leave no lock held. The thread ends at its next cancellation point of its own.
 */
#include <pthread.h>

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/workqueue.h>

#include "check.h"

static struct workqueue_struct *wq;
static bool passed;

static void nothing(struct work_struct *work)
{
	(void)work;
}

static int waits_for_its_end(void *arg)
{
	(void)arg;
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static void use_everything(void)
{
	struct work_struct work;
	DEFINE_MUTEX(mutex);
	struct completion completion;
	struct workqueue_struct *other;
	struct task_struct *thread;
	struct file *file;

	INIT_WORK_ONSTACK(&work, nothing);
	pr_info("cancelled\n");
	msleep(1);
	usleep_range(1, 2);
	mutex_lock(&mutex);
	mutex_unlock(&mutex);
	init_completion(&completion);
	CHECK(wait_for_completion_timeout(&completion, 1) == 0);
	CHECK(queue_work(wq, &work) && (flush_work(&work) || true));
	drain_workqueue(wq);
	other = alloc_workqueue("cancelled2", WQ_UNBOUND, 0);
	CHECK(other != NULL);
	destroy_workqueue(other);
	synchronize_rcu();
	rcu_barrier();
	kfree(kzalloc(100, GFP_KERNEL));
	thread = kthread_run(waits_for_its_end, NULL, "cancelled");
	CHECK(!IS_ERR(thread));
	/* -EINTR if it has not started. */
	kthread_stop(thread);
	CHECK(num_online_cpus() > 0);
	file = filp_open("/dev/null", O_WRONLY, 0);
	CHECK(!IS_ERR(file) && filp_close(file, NULL) == 0);
	destroy_work_on_stack(&work);
}

static void *cancelled_thread(void *unused)
{
	(void)unused;
	CHECK(pthread_cancel(pthread_self()) == 0);
	use_everything();
	passed = true;
	pthread_testcancel();
	return NULL;
}

static int __init cancelled_init(void)
{
	pthread_t thread;
	void *end;

	wq = alloc_workqueue("cancelled", 0, 0);
	CHECK(wq != NULL);
	CHECK(pthread_create(&thread, NULL, cancelled_thread, NULL) == 0);
	CHECK(pthread_join(thread, &end) == 0);
	CHECK(passed && end == PTHREAD_CANCELED);
	use_everything();
	destroy_workqueue(wq);
	return checked();
}
module_init(cancelled_init)
