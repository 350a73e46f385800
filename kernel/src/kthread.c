/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Kernel threads. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/kthread.h>
#include "task.h"

static bool has_wish(const struct task *task, uint32_t wish)
{
	return (__atomic_load_n(&task->wishes, __ATOMIC_SEQ_CST) & wish) != 0;
}

static struct task *me(void)
{
	return uw_task_of(current);
}

static void end(struct task *task, int result)
{
	task->result = result;
	uw_task_over(task);
	complete_all(&task->ended);
	/*
	 * Ends the wait of kthread_park(), which would not return otherwise. The thread still holds
	 * its reference.
	 */
	__atomic_fetch_or(&task->wishes, TASK_ENDED, __ATOMIC_SEQ_CST);
	complete_all(&task->parked);
}

static void *run(void *arg)
{
	struct task *task = arg;
	int result = -EINTR;

	uw_task_adopt(task);
	pthread_setname_np(pthread_self(), task->public.comm);
	complete(&task->begun);
	/*
	 * The thread starts in the state TASK_UNINTERRUPTIBLE: it sleeps here until its first
	 * wake-up.
	 */
	schedule();
	if (!has_wish(task, TASK_STOP)) {
		kthread_parkme();
		result = task->function(task->data);
	} else if (task->function == kthread_worker_fn) {
		uw_worker_never_ran(task->data);
	}
	end(task, result);
	return NULL;
}

/*
 * Like a kernel thread, it receives no signal, except for faults of its own instructions. It starts
 * with the creator's mask plus all other signals.
 */
static int start(pthread_t *thread, const pthread_attr_t *attr, struct task *task)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
	sigset_t blocked, before;
	int error;

	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&blocked, faults[i]);
	pthread_sigmask(SIG_BLOCK, &blocked, &before);
	error = pthread_create(thread, attr, run, task);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static struct task_struct *create(int (*function)(void *data), void *data, const char *name)
{
	struct task *task = uw_task_new();
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	if (!task)
		return ERR_PTR(-ENOMEM);
	snprintf(task->public.comm, sizeof(task->public.comm), "%s", name);
	task->public.flags = PF_KTHREAD;
	task->function = function;
	task->data = data;
	__atomic_store_n(&task->public.__state, TASK_UNINTERRUPTIBLE, __ATOMIC_RELAXED);
	/* The second reference belongs to the caller of kthread_stop(). */
	uw_kernel_get_task(&task->public);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	error = start(&thread, &attr, task);
	pthread_attr_destroy(&attr);
	if (error) {
		uw_kernel_put_task(&task->public);
		uw_kernel_put_task(&task->public);
		return ERR_PTR(-error);
	}
	/* After this the task has a thread id, so that its niceness and CPUs can be set. */
	wait_for_completion(&task->begun);
	return &task->public;
}

struct task_struct *kthread_create_on_node(int (*threadfn)(void *data), void *data, int node, const char *fmt, ...)
{
	struct task_struct *task;
	char name[TASK_COMM_LEN];
	va_list args;

	va_start(args, fmt);
	uw_kernel_vsnprintf(name, sizeof(name), fmt, args);
	va_end(args);
	task = create(threadfn, data, name);
	if (!IS_ERR(task) && node >= 0 && !cpumask_empty(uw_kernel_node_mask(node)))
		uw_kernel_set_cpus(task, uw_kernel_node_mask(node));
	return task;
}

struct task_struct *kthread_create_on_cpu(int (*threadfn)(void *data), void *data, unsigned int cpu, const char *fmt)
{
	struct task_struct *task = kthread_create_on_node(threadfn, data, -1, fmt, cpu);

	if (!IS_ERR(task))
		kthread_bind(task, cpu);
	return task;
}

void kthread_bind(struct task_struct *task, unsigned int cpu)
{
	kthread_bind_mask(task, cpumask_of(cpu));
}

void kthread_bind_mask(struct task_struct *task, const struct cpumask *mask)
{
	int error = uw_kernel_set_cpus(task, mask);

	WARN(error != 0, "kthread %s cannot be bound: %pe\n", task->comm, ERR_PTR(error));
}

static void wish(struct task *task, uint32_t what)
{
	__atomic_fetch_or(&task->wishes, what, __ATOMIC_SEQ_CST);
	uw_kernel_wake_task(&task->public, ~0u);
}

/* A thread of the parent that had not ended at the fork: no change of its state comes. */
static bool never_runs(struct task *task)
{
	return uw_task_is_of_parent(task) && !completion_done(&task->ended);
}

int kthread_stop(struct task_struct *public)
{
	struct task *task = uw_task_of(public);
	int result;

	uw_task_stopped(task);
	kthread_unpark(public);
	wish(task, TASK_STOP);
	if (never_runs(task)) {
		result = -ECANCELED;
	} else {
		wait_for_completion(&task->ended);
		result = task->result;
	}
	uw_kernel_put_task(public);
	return result;
}

int kthread_stop_put(struct task_struct *task)
{
	int result = kthread_stop(task);

	uw_kernel_put_task(task);
	return result;
}

bool kthread_should_stop(void)
{
	return has_wish(me(), TASK_STOP);
}

bool kthread_should_park(void)
{
	return has_wish(me(), TASK_PARK);
}

int kthread_park(struct task_struct *public)
{
	struct task *task = uw_task_of(public);
	uint32_t before;

	if (completion_done(&task->ended) || uw_task_is_of_parent(task))
		return -ENOSYS;
	if (has_wish(task, TASK_PARK))
		return -EBUSY;
	before = __atomic_load_n(&task->parks, __ATOMIC_SEQ_CST);
	reinit_completion(&task->parked);
	wish(task, TASK_PARK);
	if (public == current)
		return 0;
	/*
	 * A thread that has ended meanwhile never parks. Both marks are in one word, so one
	 * precedes the other: either this load sees TASK_ENDED, or the end comes after TASK_PARK
	 * was set and completes `parked`.
	 */
	if (!has_wish(task, TASK_ENDED))
		wait_for_completion(&task->parked);
	/* If the thread has parked since, the answer is 0, even if it was unparked again. */
	return __atomic_load_n(&task->parks, __ATOMIC_SEQ_CST) != before ? 0 : -ENOSYS;
}

void kthread_unpark(struct task_struct *public)
{
	struct task *task = uw_task_of(public);

	if (has_wish(task, TASK_PARK)) {
		__atomic_fetch_and(&task->wishes, ~(uint32_t)TASK_PARK, __ATOMIC_SEQ_CST);
		uw_kernel_wake_task(public, ~0u);
	}
}

void kthread_parkme(void)
{
	struct task *task = me();

	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		if (!has_wish(task, TASK_PARK))
			break;
		__atomic_fetch_add(&task->parks, 1, __ATOMIC_SEQ_CST);
		complete_all(&task->parked);
		schedule();
	}
	__set_current_state(TASK_RUNNING);
}

void *kthread_data(struct task_struct *task)
{
	return uw_task_of(task)->data;
}

void kthread_exit(long result)
{
	end(me(), (int)result);
	pthread_exit(NULL);
}

void kthread_complete_and_exit(struct completion *done, long result)
{
	if (done)
		complete(done);
	kthread_exit(result);
}
