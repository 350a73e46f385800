/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tasks: sleeping and waking. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cancel.h"
#include "fork.h"
#include "read_file.h"
#include "task.h"

#define KEPT_TASKS 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guard of these: the lock. Kept tasks are listed from the oldest. */
static struct task *free_tasks;
static struct task *first_kept, *last_kept;
static unsigned int kept;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static __thread struct task *this_task;

/* Counts forks: the tasks of the parent's threads keep the number of their process. Written while there is one thread. */
static unsigned int forks;

/*
 * Whether tasks register for task work. A registered thread has a signal handler, which most
 * programs do not need.
 */
static bool takes_task_work;

void uw_kernel_use_task_work(void)
{
	__atomic_store_n(&takes_task_work, true, __ATOMIC_RELAXED);
}

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
	uw_task_put(task->handle);
	task->handle = NULL;
	pthread_mutex_lock(&lock);
	task->next = free_tasks;
	free_tasks = task;
	pthread_mutex_unlock(&lock);
}

/* The caller holds the lock. */
static void forget(struct task *task)
{
	*(task->previous ? &task->previous->next : &first_kept) = task->next;
	*(task->next ? &task->next->previous : &last_kept) = task->previous;
	task->is_kept = false;
	kept--;
}

void uw_task_over(struct task *task)
{
	struct task *oldest = NULL;

	pthread_mutex_lock(&lock);
	if (!task->is_stopped && !task->is_kept) {
		task->is_kept = true;
		task->next = NULL;
		task->previous = last_kept;
		*(last_kept ? &last_kept->next : &first_kept) = task;
		last_kept = task;
		if (++kept > KEPT_TASKS) {
			oldest = first_kept;
			forget(oldest);
		}
	}
	pthread_mutex_unlock(&lock);
	if (oldest)
		uw_kernel_put_task(&oldest->public);
}

void uw_task_stopped(struct task *task)
{
	pthread_mutex_lock(&lock);
	task->is_stopped = true;
	if (task->is_kept)
		forget(task);
	pthread_mutex_unlock(&lock);
}

struct task *uw_task_new(void)
{
	struct task *task;

	pthread_mutex_lock(&lock);
	task = free_tasks;
	if (task)
		free_tasks = task->next;
	pthread_mutex_unlock(&lock);
	if (!task) {
		task = calloc(1, sizeof(*task));
		if (!task)
			return NULL;
	}
	memset(task->public.comm, 0, sizeof(task->public.comm));
	task->public.pid = 0;
	task->public.tgid = getpid();
	task->public.flags = 0;
	task->public.uw_allowed_signals = 0;
	task->public.uw_pending_signals = 0;
	__atomic_store_n(&task->public.__state, TASK_RUNNING, __ATOMIC_RELAXED);
	task->function = NULL;
	task->data = NULL;
	__atomic_store_n(&task->wishes, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&task->parks, 0, __ATOMIC_RELAXED);
	task->result = 0;
	task->has_thread = false;
	task->forks = forks;
	task->is_stopped = false;
	task->is_kept = false;
	task->handle = NULL;
	task->deputy = NULL;
	init_completion(&task->begun);
	init_completion(&task->ended);
	init_completion(&task->parked);
	__atomic_store_n(&task->references, 1, __ATOMIC_RELEASE);
	return task;
}

static void at_thread_end(void *arg)
{
	struct task *task = arg;

	this_task = NULL;
	pthread_mutex_lock(&lock);
	task->has_thread = false;
	pthread_mutex_unlock(&lock);
	uw_kernel_put_task(&task->public);
}

static void make_key(void)
{
	if (pthread_key_create(&key, at_thread_end) != 0)
		abort();
}

/* Registers the calling thread, which must be the thread of this task. */
static void take_task_work(struct task *task)
{
	struct uw_task *handle = uw_task_current();

	pthread_mutex_lock(&lock);
	task->handle = handle;
	pthread_mutex_unlock(&lock);
}

struct uw_task *uw_task_handle(struct task *task)
{
	struct uw_task *handle;

	pthread_mutex_lock(&lock);
	handle = task->handle ? uw_task_get(task->handle) : NULL;
	pthread_mutex_unlock(&lock);
	return handle;
}

void uw_task_adopt(struct task *task)
{
	if (__atomic_load_n(&takes_task_work, __ATOMIC_RELAXED))
		take_task_work(task);
	pthread_once(&key_once, make_key);
	pthread_mutex_lock(&lock);
	task->public.pid = (pid_t)syscall(SYS_gettid);
	task->has_thread = true;
	pthread_mutex_unlock(&lock);
	this_task = task;
	pthread_setspecific(key, task);
}

void uw_task_fork(enum uw_fork at)
{
	uw_fork_mutex(&lock, at);
	if (at != UW_FORK_CHILD)
		return;
	forks++;
	if (this_task) {
		this_task->forks = forks;
		this_task->public.pid = (pid_t)syscall(SYS_gettid);
		this_task->public.tgid = getpid();
		this_task->public.flags &= ~(unsigned int)(PF_WQ_WORKER | PF_KTHREAD);
		/* Task work that was added in the parent runs there. */
		this_task->handle = NULL;
		/* The thread that asked for this would also unpark it. */
		__atomic_fetch_and(&this_task->wishes, ~(uint32_t)TASK_PARK, __ATOMIC_RELAXED);
	}
}

bool uw_task_is_of_parent(const struct task *task)
{
	return task->forks != forks;
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
		if (uw_kernel_context() & UW_KERNEL_IN_WORKER)
			task->public.flags = PF_KTHREAD | PF_WQ_WORKER;
		pthread_getname_np(pthread_self(), task->public.comm, sizeof(task->public.comm));
	}
	if (!task->handle && __atomic_load_n(&takes_task_work, __ATOMIC_RELAXED))
		take_task_work(task);
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

int uw_kernel_send_signal(int number, struct task_struct *task)
{
	u64 bit;

	if (number < 0 || number > 64)
		return -EINVAL;
	bit = number ? 1ull << (number - 1) : 0;
	if (!(__atomic_load_n(&task->uw_allowed_signals, __ATOMIC_SEQ_CST) & bit))
		return 0;
	/* A sleeper writes its state before it reads the signals, so one side sees the other's write. */
	__atomic_fetch_or(&task->uw_pending_signals, bit, __ATOMIC_SEQ_CST);
	uw_kernel_wake_task(task, TASK_INTERRUPTIBLE);
	return 0;
}

long uw_kernel_schedule(long timeout)
{
	struct task_struct *task = uw_kernel_current();
	bool bounded = timeout != MAX_SCHEDULE_TIMEOUT;
	uint64_t begin = bounded ? uw_kernel_now_ns() : 0;
	uint64_t limit = bounded ? uw_kernel_jiffies_to_ns(timeout > 0 ? (unsigned long)timeout : 0) : 0;
	uint64_t used = 0;
	uint32_t state = __atomic_load_n(&task->__state, __ATOMIC_SEQ_CST);

	/* The waits that a signal does not end have both bits. */
	if ((state & TASK_NORMAL) == TASK_INTERRUPTIBLE && signal_pending(task))
		state = TASK_RUNNING;
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

/* ---------------------------------------------------------------------------- CPUs and priorities */

/* The 39th word of the system's description; the second, in parentheses, may have spaces. */
unsigned int uw_kernel_task_cpu(const struct task_struct *task)
{
	char path[64], text[1024];
	const char *at;
	int word;
	UW_HOLD_CANCEL_OFF;

	if (task == uw_kernel_current())
		return (unsigned int)uw_kernel_this_cpu();
	if (uw_task_is_of_parent((const struct task *)task))
		return 0;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", task->pid);
	if (!uw_kernel_read_file(path, text, sizeof(text)))
		return 0;
	at = strrchr(text, ')');
	for (word = 2; at && word < 39; word++)
		at = strchr(at + 1, ' ');
	return at ? (unsigned int)strtoul(at, NULL, 10) : 0;
}

/*
 * Whether the id of the task's thread belongs to a thread of this process. The caller holds the lock, so that it remains
 * so.
 */
static bool has_thread(const struct task *task)
{
	return task && task->has_thread && !uw_task_is_of_parent(task);
}

/* The caller holds the lock. */
static int set_cpus(const struct task *task, const struct cpumask *mask)
{
	if (!has_thread(task))
		return 0;
	return sched_setaffinity(task->public.pid, sizeof(*mask), (const cpu_set_t *)mask) == 0 ? 0 : -errno;
}

/* The C library's function returns -1 both as an error and as a niceness; the system returns 20 minus the niceness. */
int uw_task_nice_of(pid_t thread)
{
	long left = syscall(SYS_getpriority, PRIO_PROCESS, thread);

	return left < 0 ? 0 : 20 - (int)left;
}

static void set_nice(const struct task *task, int nice)
{
	/* The process's limits apply; a refusal is not an error. */
	if (has_thread(task))
		(void)setpriority(PRIO_PROCESS, (id_t)task->public.pid, nice);
}

int uw_kernel_set_cpus(struct task_struct *public, const struct cpumask *mask)
{
	struct task *task = uw_task_of(public);
	int error;

	pthread_mutex_lock(&lock);
	error = set_cpus(task, mask);
	if (!error)
		error = set_cpus(task->deputy, mask);
	pthread_mutex_unlock(&lock);
	return error;
}

void uw_kernel_set_nice(struct task_struct *public, long nice)
{
	struct task *task = uw_task_of(public);

	pthread_mutex_lock(&lock);
	set_nice(task, (int)nice);
	set_nice(task->deputy, (int)nice);
	pthread_mutex_unlock(&lock);
}

/* The caller holds the lock. */
static int set_scheduler(const struct task *task, int policy, const struct sched_param *param)
{
	if (!has_thread(task))
		return 0;
	return uw_kernel_posix_sched_setscheduler(task->public.pid, policy, param) == 0 ? 0 : -errno;
}

int uw_kernel_set_scheduler(struct task_struct *public, int policy, const struct sched_param *param)
{
	struct task *task = uw_task_of(public);
	int error;

	pthread_mutex_lock(&lock);
	error = set_scheduler(task, policy, param);
	if (!error)
		error = set_scheduler(task->deputy, policy, param);
	pthread_mutex_unlock(&lock);
	return error;
}

int uw_kernel_get_nice(const struct task_struct *public)
{
	int nice = 0;

	pthread_mutex_lock(&lock);
	if (has_thread((const struct task *)public))
		nice = uw_task_nice_of(public->pid);
	pthread_mutex_unlock(&lock);
	return nice;
}

void uw_task_set_deputy(struct task *task, struct task *deputy)
{
	struct cpumask mask;

	pthread_mutex_lock(&lock);
	task->deputy = deputy;
	if (deputy && has_thread(task)) {
		cpumask_clear(&mask);
		if (sched_getaffinity(task->public.pid, sizeof(mask), (cpu_set_t *)&mask) == 0)
			(void)set_cpus(deputy, &mask);
		set_nice(deputy, uw_task_nice_of(task->public.pid));
	}
	pthread_mutex_unlock(&lock);
}

void uw_task_remember(struct task *task)
{
	cpumask_clear(&task->own_cpus);
	if (sched_getaffinity(0, sizeof(task->own_cpus), (cpu_set_t *)&task->own_cpus) != 0)
		cpumask_copy(&task->own_cpus, cpu_online_mask);
	task->own_nice = uw_task_nice_of(task->public.pid);
}

void uw_task_restore(struct task *task)
{
	struct sched_param normal = { 0 };

	pthread_mutex_lock(&lock);
	(void)set_cpus(task, &task->own_cpus);
	/* A process that was permitted to leave the normal policy is permitted to return to it. */
	(void)set_scheduler(task, SCHED_OTHER, &normal);
	set_nice(task, task->own_nice);
	pthread_mutex_unlock(&lock);
}
