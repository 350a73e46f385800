/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Workers with one thread each: dedicated queues. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <linux/kernel.h>
#include <linux/kthread.h>
#include "may_wait.h"
#include "names.h"
#include "task.h"

static struct uw_queue *make(const char *name, const struct cpumask *cpus)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;

	attrs.dedicated = true;
	if (cpus) {
		attrs.cpumask = cpus->bits;
		attrs.cpumask_bytes = sizeof(cpus->bits);
	}
	return uw_kernel_create_named(name, &attrs);
}

/* An item that runs on the queue's thread and returns that thread's task. */
struct introduction {
	struct uw_work item;
	const char *name;
	struct task *task;
};

static void introduce(struct uw_work *item)
{
	struct introduction *introduction = UW_CONTAINER_OF(item, struct introduction, item);
	struct task_struct *me = current;

	me->flags = PF_KTHREAD;
	if (introduction->name)
		snprintf(me->comm, sizeof(me->comm), "%s", introduction->name);
	uw_kernel_get_task(me);
	introduction->task = uw_task_of(me);
	uw_task_remember(introduction->task);
}

/*
 * The task of the queue's thread, with a reference. NULL if the queue no longer runs items. The caller may wait: the
 * item is on its stack.
 */
static struct task *thread_of(struct uw_queue *queue, const char *name)
{
	struct introduction introduction = { .name = name };

	uw_work_init(&introduction.item, introduce);
	if (uw_queue_work(queue, &introduction.item) == 1)
		uw_work_flush(&introduction.item);
	uw_work_cancel_sync(&introduction.item);
	return introduction.task;
}

static struct kthread_worker *create(unsigned int flags, const struct cpumask *cpus, const char *fmt, va_list args)
{
	struct kthread_worker *worker;
	char name[WQ_NAME_LEN];
	struct task *task;

	if (!uw_kernel_may_wait()) {
		pr_err("kthread_create_worker: the caller is a thread hook or an item of a BH queue, which must not wait\n");
		return ERR_PTR(-EDEADLK);
	}
	worker = calloc(1, sizeof(*worker));
	if (!worker)
		return ERR_PTR(-ENOMEM);
	uw_kernel_vsnprintf(name, sizeof(name), fmt, args);
	worker->flags = flags;
	worker->uw_queue = make(name, cpus);
	if (!worker->uw_queue) {
		int error = errno;

		free(worker);
		return ERR_PTR(-error);
	}
	task = thread_of(worker->uw_queue, name);
	worker->task = task ? &task->public : NULL;
	return worker;
}

struct kthread_worker *kthread_create_worker_on_node(unsigned int flags, int node, const char *fmt, ...)
{
	const struct cpumask *cpus = node >= 0 ? uw_kernel_node_mask(node) : NULL;
	struct kthread_worker *worker;
	va_list args;

	va_start(args, fmt);
	worker = create(flags, cpus && cpumask_empty(cpus) ? NULL : cpus, fmt, args);
	va_end(args);
	return worker;
}

struct kthread_worker *(kthread_create_worker_on_cpu)(int cpu, unsigned int flags, const char *fmt, ...)
{
	struct kthread_worker *worker;
	va_list args;

	va_start(args, fmt);
	worker = create(flags, cpumask_of(cpu), fmt, args);
	va_end(args);
	return worker;
}

void uw_kernel_init_worker(struct kthread_worker *worker)
{
	worker->flags = 0;
	worker->task = NULL;
	worker->uw_queue = make(UW_KERNEL_WORKER_QUEUE, NULL);
	if (!worker->uw_queue)
		uw_kernel_bug("kthread_init_worker: no thread", __FILE__, __LINE__);
}

/*
 * The items run on the queue's own thread, which is the deputy of the calling thread. The calling
 * thread only waits until it is told to stop.
 */
int kthread_worker_fn(void *arg)
{
	struct kthread_worker *worker = arg;
	struct task *deputy = thread_of(uw_kernel_worker_queue(worker), current->comm);

	/* Other threads poll this field to learn that the worker runs. */
	WRITE_ONCE(worker->task, current);
	uw_task_set_deputy(uw_task_of(current), deputy);
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (kthread_should_stop())
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	uw_task_set_deputy(uw_task_of(current), NULL);
	if (deputy)
		uw_task_restore(deputy);
	uw_kernel_queued(uw_queue_destroy(worker->uw_queue));
	if (deputy)
		uw_kernel_put_task(&deputy->public);
	worker->uw_queue = NULL;
	WRITE_ONCE(worker->task, NULL);
	return 0;
}

void uw_worker_never_ran(struct kthread_worker *worker)
{
	if (worker->uw_queue)
		uw_kernel_queued(uw_queue_destroy(worker->uw_queue));
	worker->uw_queue = NULL;
}

void kthread_destroy_worker(struct kthread_worker *worker)
{
	if (worker->task)
		uw_task_restore(uw_task_of(worker->task));
	uw_kernel_queued(uw_queue_destroy(worker->uw_queue));
	if (worker->task)
		uw_kernel_put_task(worker->task);
	free(worker);
}
