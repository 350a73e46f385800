/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the library keeps of a task. */
#ifndef UWORK_KERNEL_TASK_H
#define UWORK_KERNEL_TASK_H

#include <pthread.h>
#include <stdbool.h>

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/sched.h>

enum {
	TASK_STOP = 1,
	TASK_PARK = 2,
	TASK_ENDED = 4,
};

/*
 * Memory of tasks is used again for tasks and never given back: a wake-up that comes late finds one, and a wake-up
 * too many is something that every sleeper must expect anyway.
 */
struct task {
	struct task_struct public;
	int references;
	/* Guard of these: the lock of tasks. */
	struct task *next;
	struct task *previous;
	bool has_thread;
	bool is_stopped;
	bool is_kept;
	/* By which its thread gets functions to run. Or NULL. */
	struct uw_task *handle;
	/* The thread that works for this one: what its thread is given, that one is given too. Or NULL. */
	struct task *deputy;
	/* Of a queue's thread that was handed out: what it had. The queue may go, and the thread serve another one. */
	struct cpumask own_cpus;
	int own_nice;
	/* Of kthreads. */
	int (*function)(void *data);
	void *data;
	uint32_t wishes;
	/* How often its thread has parked, or was about to. */
	uint32_t parks;
	int result;
	struct completion begun;
	struct completion ended;
	struct completion parked;
};

/* The calling thread's CPUs and niceness are what it gets back by uw_task_restore(). */
void uw_task_remember(struct task *task);
void uw_task_restore(struct task *task);

struct kthread_worker;

/* kthread_worker_fn() of this worker will not be called: its queue ends. */
void uw_worker_never_ran(struct kthread_worker *worker);

/* A reference for uw_task_put(); NULL if the task has no thread that takes functions. */
struct uw_task *uw_task_handle(struct task *task);

struct task *uw_task_of(struct task_struct *task);
/* With one reference; NULL without memory. */
struct task *uw_task_new(void);
/* The calling thread is this task until it ends. */
void uw_task_adopt(struct task *task);
/*
 * A kthread is over. What it has left stays for kthread_stop(), which need not come: so the last KEPT_TASKS of them
 * stay.
 */
void uw_task_over(struct task *task);
/* kthread_stop() came: its task is its caller's. */
void uw_task_stopped(struct task *task);
/* From now on `deputy`, of which the caller has a reference, works for `task`, and has its CPUs and niceness. NULL: nobody. */
void uw_task_set_deputy(struct task *task, struct task *deputy);

#endif
