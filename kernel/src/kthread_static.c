/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Workers that were initialised statically, and the attributes of a created thread. */
#include <linux/kthread.h>
#include "task.h"

/*
 * Lock-free: a child of fork() could otherwise inherit a lock that is held by a thread creating a
 * queue.
 */
struct uw_queue *uw_kernel_worker_queue(struct kthread_worker *worker)
{
	struct uw_queue *queue = __atomic_load_n(&worker->uw_queue, __ATOMIC_ACQUIRE);

	if (!queue) {
		struct kthread_worker made = KTHREAD_WORKER_INIT(made);

		uw_kernel_init_worker(&made);
		/* The worker's thread may already run, and may have set the worker's queue. */
		if (__atomic_compare_exchange_n(&worker->uw_queue, &queue, made.uw_queue, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			return made.uw_queue;
		/* Another thread has set the queue first. */
		uw_kernel_queued(uw_queue_destroy(made.uw_queue));
	}
	return queue;
}

void *kthread_func(struct task_struct *task)
{
	return (void *)uw_task_of(task)->function;
}
