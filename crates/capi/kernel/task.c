/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tasks: who sleeps, who wakes whom. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "task.h"

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static struct task *free_tasks;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static __thread struct task *this_task;

struct task *uw_task_of(struct task_struct *task)
{
	return (struct task *)task;
}

void uw_kernel_get_task(struct task_struct *task)
{
	__atomic_fetch_add(&uw_task_of(task)->references, 1, __ATOMIC_RELAXED);
}

void uw_kernel_put_task(struct task_struct *public)
{
	struct task *task = uw_task_of(public);

	if (__atomic_sub_fetch(&task->references, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	pthread_mutex_lock(&free_lock);
	task->next_free = free_tasks;
	free_tasks = task;
	pthread_mutex_unlock(&free_lock);
}

struct task *uw_task_new(void)
{
	struct task *task;

	pthread_mutex_lock(&free_lock);
	task = free_tasks;
	if (task)
		free_tasks = task->next_free;
	pthread_mutex_unlock(&free_lock);
	if (!task) {
		task = calloc(1, sizeof(*task));
		if (!task)
			return NULL;
	}
	memset(task->public.comm, 0, sizeof(task->public.comm));
	task->public.pid = 0;
	task->public.tgid = getpid();
	task->public.flags = 0;
	__atomic_store_n(&task->public.__state, TASK_RUNNING, __ATOMIC_RELAXED);
	task->function = NULL;
	task->data = NULL;
	__atomic_store_n(&task->wishes, 0, __ATOMIC_RELAXED);
	task->result = 0;
	init_completion(&task->ended);
	init_completion(&task->parked);
	__atomic_store_n(&task->references, 1, __ATOMIC_RELEASE);
	return task;
}

static void at_thread_end(void *task)
{
	this_task = NULL;
	uw_kernel_put_task(task);
}

static void make_key(void)
{
	if (pthread_key_create(&key, at_thread_end) != 0)
		abort();
}

void uw_task_adopt(struct task *task)
{
	pthread_once(&key_once, make_key);
	task->public.pid = (pid_t)syscall(SYS_gettid);
	task->thread = pthread_self();
	this_task = task;
	pthread_setspecific(key, task);
}

struct task_struct *uw_kernel_current(void)
{
	struct task *task = this_task;

	if (!task) {
		task = uw_task_new();
		if (!task) {
			fputs("uwork: no memory for a task\n", stderr);
			abort();
		}
		uw_task_adopt(task);
		pthread_getname_np(task->thread, task->public.comm, sizeof(task->public.comm));
	}
	return &task->public;
}

int uw_kernel_wake_task(struct task_struct *task, unsigned int states)
{
	uint32_t state = __atomic_load_n(&task->__state, __ATOMIC_SEQ_CST);

	do {
		if ((state & states) == 0)
			return 0;
	} while (!__atomic_compare_exchange_n(&task->__state, &state, TASK_RUNNING, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	uw_kernel_wake(&task->__state, 1);
	return 1;
}

long uw_kernel_schedule(long timeout)
{
	struct task_struct *task = uw_kernel_current();
	bool bounded = timeout != MAX_SCHEDULE_TIMEOUT;
	uint64_t begin = bounded ? uw_kernel_now_ns() : 0;
	uint64_t limit = bounded ? uw_kernel_jiffies_to_ns(timeout > 0 ? (unsigned long)timeout : 0) : 0;
	uint64_t used = 0;
	uint32_t state = __atomic_load_n(&task->__state, __ATOMIC_SEQ_CST);

	if (state == TASK_RUNNING && !bounded)
		sched_yield();
	while (state != TASK_RUNNING && !(bounded && used >= limit)) {
		uw_kernel_wait(&task->__state, state, bounded ? limit - used : UW_KERNEL_FOREVER);
		state = __atomic_load_n(&task->__state, __ATOMIC_SEQ_CST);
		used = bounded ? uw_kernel_now_ns() - begin : 0;
	}
	__atomic_store_n(&task->__state, TASK_RUNNING, __ATOMIC_SEQ_CST);
	if (!bounded)
		return MAX_SCHEDULE_TIMEOUT;
	return used >= limit ? 0 : (long)((limit - used + UW_KERNEL_NS_PER_JIFFY - 1) / UW_KERNEL_NS_PER_JIFFY);
}

int uw_kernel_set_cpus(struct task_struct *task, const struct cpumask *mask)
{
	return -pthread_setaffinity_np(uw_task_of(task)->thread, sizeof(*mask), (const cpu_set_t *)mask);
}

void uw_kernel_set_nice(struct task_struct *task, long nice)
{
	/* A kthread may not have begun to run, and has no number then; it is best effort in any case. */
	if (task->pid != 0)
		(void)setpriority(PRIO_PROCESS, (id_t)task->pid, (int)nice);
}
