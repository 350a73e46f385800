/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tasklets: items on the BH queues. A program cannot request interrupts. */
#ifndef UWORK_KERNEL_LINUX_INTERRUPT_H
#define UWORK_KERNEL_LINUX_INTERRUPT_H

#include <linux/atomic.h>
#include <linux/hardirq.h>
#include <linux/irqflags.h>
#include <linux/workqueue.h>

struct tasklet_struct {
	struct uw_work uw_item;
	void (*callback)(struct tasklet_struct *tasklet);
	/* The function of the older interface. */
	void (*func)(unsigned long data);
	unsigned long data;
	/* How often it is disabled, and whether a run was due meanwhile. */
	uint32_t uw_disabled;
	uint32_t uw_missed;
};

#ifdef __cplusplus
extern "C" {
#endif
void uw_kernel_tasklet_run(struct uw_work *item);
#ifdef __cplusplus
}
#endif

#define DECLARE_TASKLET(name, function) \
	struct tasklet_struct name = { UW_WORK_INIT(uw_kernel_tasklet_run), (function), NULL, 0, 0, 0 }
#define DECLARE_TASKLET_OLD(name, function) \
	struct tasklet_struct name = { UW_WORK_INIT(uw_kernel_tasklet_run), NULL, (function), 0, 0, 0 }
#define DECLARE_TASKLET_DISABLED(name, function) \
	struct tasklet_struct name = { UW_WORK_INIT(uw_kernel_tasklet_run), (function), NULL, 0, 1, 0 }
#define from_tasklet(var, callback_tasklet, tasklet_fieldname) \
	UW_CONTAINER_OF(callback_tasklet, __typeof__(*(var)), tasklet_fieldname)

static inline void tasklet_setup(struct tasklet_struct *tasklet, void (*callback)(struct tasklet_struct *))
{
	uw_work_init(&tasklet->uw_item, uw_kernel_tasklet_run);
	tasklet->callback = callback;
	tasklet->func = NULL;
	tasklet->data = 0;
	tasklet->uw_disabled = 0;
	tasklet->uw_missed = 0;
}

static inline void tasklet_init(struct tasklet_struct *tasklet, void (*func)(unsigned long), unsigned long data)
{
	tasklet_setup(tasklet, NULL);
	tasklet->func = func;
	tasklet->data = data;
}

static inline void tasklet_schedule(struct tasklet_struct *tasklet)
{
	uw_kernel_queued(uw_queue_work(uw_system_queue(UW_SYSTEM_BH), &tasklet->uw_item));
}

static inline void tasklet_hi_schedule(struct tasklet_struct *tasklet)
{
	uw_kernel_queued(uw_queue_work(uw_system_queue(UW_SYSTEM_BH_HIGHPRI), &tasklet->uw_item));
}

/* If it is scheduled, waits until it has run. */
static inline void tasklet_kill(struct tasklet_struct *tasklet)
{
	while (uw_kernel_queued(uw_work_flush(&tasklet->uw_item)))
		;
}

/* A disabled tasklet keeps one call of tasklet_schedule() until it is enabled. */
static inline void tasklet_disable_nosync(struct tasklet_struct *tasklet)
{
	__atomic_fetch_add(&tasklet->uw_disabled, 1, __ATOMIC_SEQ_CST);
}

static inline void tasklet_disable(struct tasklet_struct *tasklet)
{
	tasklet_disable_nosync(tasklet);
	while (uw_work_busy(&tasklet->uw_item) & UW_BUSY_RUNNING)
		uw_kernel_wait_unseen(&tasklet->uw_disabled, tasklet->uw_disabled, 50000);
}

#define tasklet_disable_in_atomic(tasklet) tasklet_disable(tasklet)
#define tasklet_unlock_wait(tasklet) ((void)uw_kernel_queued(uw_work_flush(&(tasklet)->uw_item)))

static inline void tasklet_enable(struct tasklet_struct *tasklet)
{
	if (__atomic_sub_fetch(&tasklet->uw_disabled, 1, __ATOMIC_SEQ_CST) == 0 &&
	    __atomic_exchange_n(&tasklet->uw_missed, 0, __ATOMIC_SEQ_CST))
		tasklet_schedule(tasklet);
}

#endif
