/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the library keeps of a task. */
#ifndef UWORK_KERNEL_TASK_H
#define UWORK_KERNEL_TASK_H

#include <pthread.h>

#include <linux/completion.h>
#include <linux/sched.h>

enum {
	TASK_STOP = 1,
	TASK_PARK = 2,
	TASK_PARKED = 4,
};

/*
 * Memory of tasks is used again for tasks and never given back: a wake-up that comes late finds one, and a wake-up
 * too many is something that every sleeper must expect anyway.
 */
struct task {
	struct task_struct public;
	struct task *next_free;
	pthread_t thread;
	int references;
	/* Of kthreads. */
	int (*function)(void *data);
	void *data;
	uint32_t wishes;
	int result;
	struct completion ended;
	struct completion parked;
};

struct task *uw_task_of(struct task_struct *task);
/* With one reference; NULL without memory. */
struct task *uw_task_new(void);
/* The calling thread is this task until it ends. */
void uw_task_adopt(struct task *task);

#endif
