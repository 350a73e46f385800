/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Workers that are one thread each: dedicated queues. */
#include <stdlib.h>

#include <linux/kernel.h>
#include <linux/kthread.h>
#include "names.h"

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

static struct kthread_worker *create(unsigned int flags, const struct cpumask *cpus, const char *fmt, va_list args)
{
	struct kthread_worker *worker = calloc(1, sizeof(*worker));
	char name[WQ_NAME_LEN];

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

struct kthread_worker *kthread_create_worker_on_cpu(int cpu, unsigned int flags, const char *fmt, ...)
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
	worker->uw_queue = make("kworker", NULL);
	if (!worker->uw_queue)
		uw_kernel_bug("kthread_init_worker: no thread", __FILE__, __LINE__);
}

/* The items run on the queue's own thread; this one waits for the end. */
int kthread_worker_fn(void *arg)
{
	struct kthread_worker *worker = arg;

	worker->task = current;
	uw_kernel_worker_queue(worker);
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (kthread_should_stop())
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	uw_kernel_queued(uw_queue_destroy(worker->uw_queue));
	worker->uw_queue = NULL;
	worker->task = NULL;
	return 0;
}

void kthread_destroy_worker(struct kthread_worker *worker)
{
	uw_kernel_queued(uw_queue_destroy(worker->uw_queue));
	free(worker);
}
