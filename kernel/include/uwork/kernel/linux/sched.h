/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tasks: every thread has one. Includes the system's header of the same name. */
#ifndef UWORK_KERNEL_LINUX_SCHED_H
#define UWORK_KERNEL_LINUX_SCHED_H

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <linux/sched.h>

/* <sched.h> declares functions as well, and under strict C11 includes <time.h>. */
#if defined(__has_include) && !defined(__cplusplus)
#if __has_include(<bits/types/struct_sched_param.h>)
#define UW_KERNEL_HAS_SCHED_PARAM
#endif
#endif
#ifdef UW_KERNEL_HAS_SCHED_PARAM
#include <bits/types/struct_sched_param.h>
#else
#include <sched.h>
#endif

#include "../uw_kernel.h"
#include "../uw_kernel_signal.h"
#include "../uw_kernel_string.h"
#include <linux/compiler.h>
#include <linux/cpumask.h>
#include <linux/errno.h>
#include <linux/jiffies.h>
#include <linux/preempt.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TASK_COMM_LEN 16

struct task_struct {
	char comm[TASK_COMM_LEN];
	pid_t pid;
	pid_t tgid;
	unsigned int flags;
	/* The task's state; also the word that it sleeps on. */
	uint32_t __state;
	/* For the library. */
	void *uw_private;
	/* Signals by number: those that the task takes, and those that it has got. Bits. */
	u64 uw_allowed_signals;
	u64 uw_pending_signals;
};

#define TASK_RUNNING 0x00000000
#define TASK_INTERRUPTIBLE 0x00000001
#define TASK_UNINTERRUPTIBLE 0x00000002
#define TASK_WAKEKILL 0x00000100
#define TASK_NOLOAD 0x00000400
#define TASK_FREEZABLE 0x00002000
#define TASK_KILLABLE (TASK_WAKEKILL | TASK_UNINTERRUPTIBLE)
#define TASK_IDLE (TASK_UNINTERRUPTIBLE | TASK_NOLOAD)
#define TASK_NORMAL (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE)
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000
#define PF_WQ_WORKER 0x00000020
#define MAX_SCHEDULE_TIMEOUT __LONG_MAX__
#define MAX_NICE 19
#define MIN_NICE (-20)
#ifndef SCHED_NORMAL
#define SCHED_NORMAL 0
#endif

/* The calling thread's task. It exists for as long as the thread; its memory stays valid longer. */
struct task_struct *uw_kernel_current(void);
#ifndef __cplusplus
#define current uw_kernel_current()
#endif

/* Returns 1 if the task was asleep in one of these states. */
int uw_kernel_wake_task(struct task_struct *task, unsigned int states);
/*
 * Sleeps until the state is TASK_RUNNING or the time has passed; only yields if the state is
 * TASK_RUNNING already.
 */
long uw_kernel_schedule(long timeout);

void kthread_exit(long result) UW_KERNEL_NAME(kthread_exit) __attribute__((noreturn));
void uw_kernel_put_task(struct task_struct *task);
void uw_kernel_get_task(struct task_struct *task);
int uw_kernel_set_cpus(struct task_struct *task, const struct cpumask *mask);
/* 0 or a negative errno value: usually -EPERM for a real-time policy. */
int uw_kernel_set_scheduler(struct task_struct *task, int policy, const struct sched_param *param);
/* As last reported by the system; 0 for a task whose thread has ended. */
unsigned int uw_kernel_task_cpu(const struct task_struct *task);
int uw_kernel_get_nice(const struct task_struct *task);
void uw_kernel_set_nice(struct task_struct *task, long nice);

static inline int wake_up_process(struct task_struct *task)
{
	return uw_kernel_wake_task(task, TASK_NORMAL);
}

static inline int wake_up_state(struct task_struct *task, unsigned int state)
{
	return uw_kernel_wake_task(task, state);
}

#define set_current_state(state) __atomic_store_n(&uw_kernel_current()->__state, (state), __ATOMIC_SEQ_CST)
#define __set_current_state(state) __atomic_store_n(&uw_kernel_current()->__state, (state), __ATOMIC_RELAXED)
#define set_special_state(state) set_current_state(state)
#define get_current_state() __atomic_load_n(&uw_kernel_current()->__state, __ATOMIC_RELAXED)
#define task_is_running(task) (READ_ONCE((task)->__state) == TASK_RUNNING)
#define get_current() uw_kernel_current()

static inline void schedule(void)
{
	uw_kernel_schedule(MAX_SCHEDULE_TIMEOUT);
}

static inline long schedule_timeout(long timeout)
{
	return uw_kernel_schedule(timeout);
}

static inline long schedule_timeout_interruptible(long timeout)
{
	__set_current_state(TASK_INTERRUPTIBLE);
	return uw_kernel_schedule(timeout);
}

static inline long schedule_timeout_uninterruptible(long timeout)
{
	__set_current_state(TASK_UNINTERRUPTIBLE);
	return uw_kernel_schedule(timeout);
}

static inline long schedule_timeout_killable(long timeout)
{
	return schedule_timeout_uninterruptible(timeout);
}

static inline long schedule_timeout_idle(long timeout)
{
	return schedule_timeout_uninterruptible(timeout);
}

static inline void io_schedule(void)
{
	schedule();
}

static inline int cond_resched(void)
{
	return 0;
}

static inline void yield(void)
{
	__set_current_state(TASK_RUNNING);
	schedule();
}

#define might_sleep() ((void)0)
#define might_resched() ((void)0)
#define need_resched() false

/*
 * Signals between tasks; those of the process are the C library's. A task gets those that it has
 * allowed. They end wait_event_interruptible() and the sleeps in TASK_INTERRUPTIBLE.
 */
/* 0, or -EINVAL if there is no such signal. */
int uw_kernel_send_signal(int number, struct task_struct *task);
static inline int send_sig(int number, struct task_struct *task, int priv)
{
	(void)priv;
	return uw_kernel_send_signal(number, task);
}

static inline int signal_pending(struct task_struct *task)
{
	return __atomic_load_n(&task->uw_pending_signals, __ATOMIC_SEQ_CST) != 0;
}

/* No bit for a number that is no signal's. */
static inline u64 uw_kernel_signal_bit(int number)
{
	return number >= 1 && number <= 64 ? 1ull << (number - 1) : 0;
}

static inline void allow_signal(int number)
{
	__atomic_fetch_or(&uw_kernel_current()->uw_allowed_signals, uw_kernel_signal_bit(number), __ATOMIC_SEQ_CST);
}

static inline void disallow_signal(int number)
{
	__atomic_fetch_and(&uw_kernel_current()->uw_allowed_signals, ~uw_kernel_signal_bit(number), __ATOMIC_SEQ_CST);
}

static inline void flush_signals(struct task_struct *task)
{
	__atomic_store_n(&task->uw_pending_signals, 0, __ATOMIC_SEQ_CST);
}

/* Takes the pending signal with the lowest number; 0 if there is none. */
static inline int kernel_dequeue_signal(void)
{
	u64 *pending = &uw_kernel_current()->uw_pending_signals;
	u64 signals = __atomic_load_n(pending, __ATOMIC_SEQ_CST);

	if (!signals)
		return 0;
	__atomic_fetch_and(pending, ~(signals & -signals), __ATOMIC_SEQ_CST);
	return __builtin_ctzll(signals) + 1;
}

static inline int fatal_signal_pending(struct task_struct *task)
{
	return (__atomic_load_n(&task->uw_pending_signals, __ATOMIC_SEQ_CST) & 1ull << (SIGKILL - 1)) != 0;
}

#define signal_pending_state(state, task) (((state) & TASK_INTERRUPTIBLE) && signal_pending(task))

/* Ends the calling kthread. */
static inline void __attribute__((noreturn)) do_exit(long result)
{
	kthread_exit(result);
}

static inline pid_t task_pid_nr(const struct task_struct *task)
{
	return task->pid;
}

static inline struct task_struct *get_task_struct(struct task_struct *task)
{
	uw_kernel_get_task(task);
	return task;
}

static inline void put_task_struct(struct task_struct *task)
{
	uw_kernel_put_task(task);
}

static inline int set_cpus_allowed_ptr(struct task_struct *task, const struct cpumask *mask)
{
	return uw_kernel_set_cpus(task, mask);
}

static inline void set_user_nice(struct task_struct *task, long nice)
{
	uw_kernel_set_nice(task, nice);
}

/*
 * Real-time policies need a privilege that programs usually lack. So this raises the niceness to
 * the maximum instead.
 */
static inline void sched_set_fifo(struct task_struct *task)
{
	uw_kernel_set_nice(task, MIN_NICE);
}

static inline void sched_set_fifo_low(struct task_struct *task)
{
	uw_kernel_set_nice(task, MIN_NICE);
}

static inline void sched_set_normal(struct task_struct *task, int nice)
{
	uw_kernel_set_nice(task, nice);
}

static inline int sched_setscheduler_nocheck(struct task_struct *task, int policy, const struct sched_param *param)
{
	return uw_kernel_set_scheduler(task, policy, param);
}

/* The system has another function of this name: see ../sched.h. In C++ it is declared already. */
#ifdef __cplusplus
#define sched_setscheduler(task, policy, param) uw_kernel_set_scheduler((task), (policy), (param))
#else
#undef sched_setscheduler
static inline int sched_setscheduler(struct task_struct *task, int policy, const struct sched_param *param)
{
	return uw_kernel_set_scheduler(task, policy, param);
}
#endif

static inline int task_nice(const struct task_struct *task)
{
	return uw_kernel_get_nice(task);
}

#define MAX_RT_PRIO 100
#define NICE_WIDTH (MAX_NICE - MIN_NICE + 1)
#define MAX_PRIO (MAX_RT_PRIO + NICE_WIDTH)
#define DEFAULT_PRIO (MAX_RT_PRIO + NICE_WIDTH / 2)
#define NICE_TO_PRIO(nice) ((nice) + DEFAULT_PRIO)
#define PRIO_TO_NICE(prio) ((prio) - DEFAULT_PRIO)
#define io_schedule_timeout(timeout) schedule_timeout(timeout)

static inline unsigned int task_cpu(const struct task_struct *task)
{
	return uw_kernel_task_cpu(task);
}

static inline pid_t task_tgid_nr(const struct task_struct *task)
{
	return task->tgid;
}

#define task_pid_vnr(task) task_pid_nr(task)
#define get_task_comm(buf, task) memcpy((buf), (task)->comm, TASK_COMM_LEN)

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
/* An object in C++: the standard library has members of this name, which a macro would break. */
struct uw_kernel_current_task {
	operator struct task_struct *() const { return uw_kernel_current(); }
	struct task_struct *operator->() const { return uw_kernel_current(); }
};
static const uw_kernel_current_task current __attribute__((unused)) = uw_kernel_current_task();
#endif

#endif
