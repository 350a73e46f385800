/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The library's part of a task. */
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
 * Memory of tasks is only reused for tasks, and never freed. So a late wake-up finds a task, at
 * worst another one: every sleeper must expect spurious wake-ups anyway.
 */
struct task {
	struct task_struct public;
	int references;
	/* Guard of these: the lock of tasks. */
	struct task *next;
	struct task *previous;
	bool has_thread;
	/* The number of forks between the library's start and the task's process. */
	unsigned int forks;
	bool is_stopped;
	bool is_kept;
	/* The reference through which the thread gets task work; or NULL. */
	struct uw_task *handle;
	/*
	 * The thread that runs items for this one; or NULL. CPUs, niceness and policy that are set
	 * for this task are set for the deputy too.
	 */
	struct task *deputy;
	/*
	 * For the thread of a queue whose task was given to the program: its original values. They
	 * are restored because the queue may end and the thread may serve another one.
	 */
	struct cpumask own_cpus;
	int own_nice;
	/* Only for kthreads. */
	int (*function)(void *data);
	void *data;
	uint32_t wishes;
	/* How often the thread has parked, or was about to. */
	uint32_t parks;
	int result;
	struct completion begun;
	struct completion ended;
	struct completion parked;
};

/* Records the calling thread's CPUs and niceness, which uw_task_restore() restores. */
void uw_task_remember(struct task *task);
void uw_task_restore(struct task *task);

struct kthread_worker;

/*
 * The thread of this worker has stopped before it called kthread_worker_fn(): destroys the worker's
 * queue.
 */
void uw_worker_never_ran(struct kthread_worker *worker);

/*
 * A reference for uw_task_put(); NULL if the task has no thread that is registered for task work.
 */
struct uw_task *uw_task_handle(struct task *task);

/* The niceness of a thread; 0 if the system does not tell it. */
int uw_task_nice_of(pid_t thread);
struct task *uw_task_of(struct task_struct *task);
/* In a forked child: whether this is the copy of the task of a thread that does not exist there. */
bool uw_task_is_of_parent(const struct task *task);
/* With one reference; NULL if there is no memory. */
struct task *uw_task_new(void);
/* Makes the calling thread the thread of this task, until the thread ends. */
void uw_task_adopt(struct task *task);
/*
 * A kthread has ended. kthread_stop() needs its result, but may never be called. So only the last
 * KEPT_TASKS of these tasks are kept.
 */
void uw_task_over(struct task *task);
/* kthread_stop() was called: the task belongs to its caller. */
void uw_task_stopped(struct task *task);
/*
 * Makes `deputy`, to which the caller holds a reference, run items for `task`, with its CPUs and
 * niceness. NULL: no deputy.
 */
void uw_task_set_deputy(struct task *task, struct task *deputy);

#endif
