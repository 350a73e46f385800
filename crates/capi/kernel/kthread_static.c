/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Workers that no call has initialised, and what a thread was made with. */
#include <linux/kthread.h>
#include "task.h"

/* Without a lock: a child of fork() would find one held by who is making a queue. */
struct uw_queue *uw_kernel_worker_queue(struct kthread_worker *worker)
{
	struct uw_queue *queue = __atomic_load_n(&worker->uw_queue, __ATOMIC_ACQUIRE);

	if (!queue) {
		struct kthread_worker made = KTHREAD_WORKER_INIT(made);

		uw_kernel_init_worker(&made);
		/* Its thread may have begun already, and has said so in the worker. */
		if (__atomic_compare_exchange_n(&worker->uw_queue, &queue, made.uw_queue, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			return made.uw_queue;
		/* Somebody else was first. */
		uw_kernel_queued(uw_queue_destroy(made.uw_queue));
	}
	return queue;
}

void *kthread_func(struct task_struct *task)
{
	return (void *)uw_task_of(task)->function;
}
