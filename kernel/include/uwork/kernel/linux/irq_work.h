/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Short functions that must not wait, called soon: items on the BH queue. */
#ifndef UWORK_KERNEL_LINUX_IRQ_WORK_H
#define UWORK_KERNEL_LINUX_IRQ_WORK_H

#include "../uw_kernel.h"
#include <linux/workqueue.h>

struct irq_work {
	struct uw_work uw_item;
	void (*func)(struct irq_work *work);
};

#ifdef __cplusplus
extern "C" {
#endif
void uw_kernel_irq_work_run(struct uw_work *item);
#ifdef __cplusplus
}
#endif

#define IRQ_WORK_INIT(func) { UW_WORK_INIT(uw_kernel_irq_work_run), (func) }
#define IRQ_WORK_INIT_LAZY(func) IRQ_WORK_INIT(func)
#define DEFINE_IRQ_WORK(name, func) struct irq_work name = IRQ_WORK_INIT(func)

static inline void init_irq_work(struct irq_work *work, void (*func)(struct irq_work *))
{
	uw_work_init(&work->uw_item, uw_kernel_irq_work_run);
	work->func = func;
}

/* Whether it was not pending. */
static inline bool irq_work_queue(struct irq_work *work)
{
	return uw_kernel_queued(uw_queue_work(uw_system_queue(UW_SYSTEM_BH), &work->uw_item));
}

static inline bool irq_work_queue_on(struct irq_work *work, int cpu)
{
	return uw_kernel_queued(uw_queue_work_on(uw_system_queue(UW_SYSTEM_BH), cpu, &work->uw_item));
}

static inline bool irq_work_is_pending(struct irq_work *work)
{
	return uw_work_is_pending(&work->uw_item) > 0;
}

static inline bool irq_work_is_busy(struct irq_work *work)
{
	return uw_work_busy(&work->uw_item) > 0;
}

/* If it is pending, waits until it has run. */
static inline void irq_work_sync(struct irq_work *work)
{
	uw_kernel_queued(uw_work_flush(&work->uw_item));
}

#endif
