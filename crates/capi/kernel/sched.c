/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How the system schedules a task. */
#include <errno.h>
#include <sys/resource.h>

#include "task.h"

int uw_kernel_set_scheduler(struct task_struct *task, int policy, const struct sched_param *param)
{
	return -pthread_setschedparam(uw_task_of(task)->thread, policy, param);
}

int uw_kernel_get_nice(const struct task_struct *task)
{
	return task->pid != 0 ? getpriority(PRIO_PROCESS, (id_t)task->pid) : 0;
}
