/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Workers that no call has initialised, and what a thread was made with. */
#include <pthread.h>

#include <linux/kthread.h>
#include "task.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct uw_queue *uw_kernel_worker_queue(struct kthread_worker *worker)
{
	struct uw_queue *queue = __atomic_load_n(&worker->uw_queue, __ATOMIC_ACQUIRE);

	if (queue)
		return queue;
	pthread_mutex_lock(&lock);
	if (!worker->uw_queue) {
		struct kthread_worker made = KTHREAD_WORKER_INIT(made);

		uw_kernel_init_worker(&made);
		/* Its thread may have begun already, and has said so in the worker. */
		__atomic_store_n(&worker->uw_queue, made.uw_queue, __ATOMIC_RELEASE);
	}
	queue = worker->uw_queue;
	pthread_mutex_unlock(&lock);
	return queue;
}

void *kthread_func(struct task_struct *task)
{
	return (void *)uw_task_of(task)->function;
}
