/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions that a particular task runs itself, in the order in which they were added. */
#ifndef UWORK_KERNEL_LINUX_TASK_WORK_H
#define UWORK_KERNEL_LINUX_TASK_WORK_H

#include "../uw_kernel.h"
#include <linux/rcupdate.h>
#include <linux/sched.h>

typedef void (*task_work_func_t)(struct callback_head *work);

/*
 * When the task runs the functions: in every mode at its next task_work_run(), and when its thread
 * ends. Threads here do not return from the kernel to user mode, so that occasion is missing.
 */
enum task_work_notify_mode {
	TWA_NONE,
	TWA_RESUME, /* also in uw_task_safe_point() */
	TWA_SIGNAL, /* also ends the task's interruptible sleep, and the waits of uw_task_park(3) */
	TWA_SIGNAL_NO_IPI, /* the same; neither mode interrupts a task that computes */
	TWA_NMI_CURRENT    /* like TWA_RESUME, for the calling task only; -EINVAL for others */
};

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Called at the start of a program in which a file includes this header. The program's tasks then
 * register for task work.
 */
void uw_kernel_use_task_work(void);
__attribute__((constructor)) static inline void uw_kernel_task_work_is_used(void)
{
	uw_kernel_use_task_work();
}

void init_task_work(struct callback_head *twork, task_work_func_t func) UW_KERNEL_NAME(init_task_work);
/*
 * -ESRCH: the task's thread has ended, and the function will not be called. Not allowed while the
 * entry is already in a list.
 */
int task_work_add(struct task_struct *task, struct callback_head *twork, enum task_work_notify_mode mode) UW_KERNEL_NAME(task_work_add);
/*
 * Cancels the oldest matching entry. NULL if there is none, or if the task already runs it. `match`
 * must not wait.
 */
struct callback_head *task_work_cancel_match(struct task_struct *task, bool (*match)(struct callback_head *work, void *data),
					     void *data) UW_KERNEL_NAME(task_work_cancel_match);
struct callback_head *task_work_cancel_func(struct task_struct *task, task_work_func_t func) UW_KERNEL_NAME(task_work_cancel_func);
bool task_work_cancel(struct task_struct *task, struct callback_head *work) UW_KERNEL_NAME(task_work_cancel);
bool task_work_pending(struct task_struct *task) UW_KERNEL_NAME(task_work_pending);

#ifdef __cplusplus
}
#endif

/* For the calling task: runs functions until none is left. */
static inline void task_work_run(void)
{
	uw_task_run();
}

#endif
