/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions that a certain task runs itself, in the order in which they were added. */
#ifndef UWORK_KERNEL_LINUX_TASK_WORK_H
#define UWORK_KERNEL_LINUX_TASK_WORK_H

#include "../uw_kernel.h"
#include <linux/rcupdate.h>
#include <linux/sched.h>

typedef void (*task_work_func_t)(struct callback_head *work);

/*
 * When the task runs them: in each case when it calls task_work_run(), and when its thread ends. No thread returns to
 * user mode here, so that happens nowhere else, as it does with the kernel's own threads.
 */
enum task_work_notify_mode {
	TWA_NONE,
	TWA_RESUME, /* uw_task_safe_point() runs them as well */
	TWA_SIGNAL, /* and the task's interruptible sleep ends, as do the waits of uw_task_park(3) */
	TWA_SIGNAL_NO_IPI = TWA_SIGNAL /* a task that computes is interrupted by neither */
};

#ifdef __cplusplus
extern "C" {
#endif

/* From the start of a program in which a file includes this, its tasks take such functions. */
void uw_kernel_use_task_work(void);
__attribute__((constructor)) static inline void uw_kernel_task_work_is_used(void)
{
	uw_kernel_use_task_work();
}

void init_task_work(struct callback_head *twork, task_work_func_t func) UW_KERNEL_NAME(init_task_work);
/* -ESRCH: the task's thread has ended, and the function will not be called. Not while it is added already. */
int task_work_add(struct task_struct *task, struct callback_head *twork, enum task_work_notify_mode mode) UW_KERNEL_NAME(task_work_add);
/* The oldest that is meant, taken back; NULL if the task runs it by now, or there is none. `match` must not wait. */
struct callback_head *task_work_cancel_match(struct task_struct *task, bool (*match)(struct callback_head *work, void *data),
					     void *data) UW_KERNEL_NAME(task_work_cancel_match);
struct callback_head *task_work_cancel_func(struct task_struct *task, task_work_func_t func) UW_KERNEL_NAME(task_work_cancel_func);
bool task_work_cancel(struct task_struct *task, struct callback_head *work) UW_KERNEL_NAME(task_work_cancel);
bool task_work_pending(struct task_struct *task) UW_KERNEL_NAME(task_work_pending);

#ifdef __cplusplus
}
#endif

/* For the calling task, until nothing is left. */
static inline void task_work_run(void)
{
	uw_task_run();
}

#endif
