/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Per-CPU work: locks on per-CPU data, and functions for one CPU's data. The functions run on that
 * CPU (pwlocks=0) or in the thread that queues them (pwlocks=1). A pw_lock_t is a member of per-CPU
 * data, and is passed as such: &percpu_variable.lock.
 *
 * The environment variable UWORK_PWLOCKS selects 0, 1 or 2. With 2, functions run in the thread
 * that queues them too, and the own CPU's lock is as cheap as with 0. Without the variable it is 1
 * if CPUs are isolated, and 0 otherwise.
 *
 * With CONFIG_PWLOCKS=n (-DCONFIG_PWLOCKS=n) the locks are local locks and the functions are work
 * items, whatever UWORK_PWLOCKS says and however many CPUs are isolated.
 *
 * A thread cannot be kept on its CPU. Between a _local lock and its unlock, smp_processor_id() and
 * this_cpu_ptr() refer to the CPU whose lock the thread holds. The functions with a `cpu` argument
 * take that CPU's lock, also with pwlocks=0 and from another CPU, where the kernel would take the
 * caller's.
 */
#ifndef UWORK_KERNEL_LINUX_PWLOCKS_H
#define UWORK_KERNEL_LINUX_PWLOCKS_H

#include <linux/bug.h>
#include <linux/container_of.h>
#include <linux/percpu.h>
#include <linux/workqueue.h>

typedef struct {
	uint64_t uw_word;
} pw_lock_t;

typedef pw_lock_t pw_trylock_t;

#ifdef __cplusplus
extern "C" {
#endif
/* `first` is the first CPU's lock of the row of all CPUs' locks. */
void uw_kernel_pw_lock(void *first, int cpu);
bool uw_kernel_pw_trylock(void *first, int cpu);
void uw_kernel_pw_unlock(void *first, int cpu);
void uw_kernel_pw_lock_local(void *first);
bool uw_kernel_pw_trylock_local(void *first);
void uw_kernel_pw_unlock_local(void *first);
bool uw_kernel_pw_is_held(void *first);
#ifdef __cplusplus
}
#endif

/* Initialises one CPU's lock: per_cpu_ptr(lock, cpu). Zero bytes are a valid lock, too. */
static inline void pw_lock_init(pw_lock_t *lock)
{
	lock->uw_word = 0;
}

static inline void pw_trylock_init(pw_trylock_t *lock)
{
	pw_lock_init(lock);
}

static inline void pw_lock(pw_lock_t *lock, int cpu)
{
	uw_kernel_pw_lock(uw_kernel_percpu(lock, 0), cpu);
}

static inline bool pw_trylock(pw_trylock_t *lock, int cpu)
{
	return uw_kernel_pw_trylock(uw_kernel_percpu(lock, 0), cpu);
}

static inline void pw_unlock(pw_lock_t *lock, int cpu)
{
	uw_kernel_pw_unlock(uw_kernel_percpu(lock, 0), cpu);
}

static inline void pw_lock_local(pw_lock_t *lock)
{
	uw_kernel_pw_lock_local(uw_kernel_percpu(lock, 0));
}

static inline bool pw_trylock_local(pw_trylock_t *lock)
{
	return uw_kernel_pw_trylock_local(uw_kernel_percpu(lock, 0));
}

static inline void pw_unlock_local(pw_lock_t *lock)
{
	uw_kernel_pw_unlock_local(uw_kernel_percpu(lock, 0));
}

/* Macros, because they set the caller's flags. Interrupts do not exist here. */
#define pw_lock_irqsave(lock, flags, cpu) ((flags) = 0, pw_lock((lock), (cpu)))
#define pw_trylock_irqsave(lock, flags, cpu) ((flags) = 0, pw_trylock((lock), (cpu)))
#define pw_unlock_irqrestore(lock, flags, cpu) ((void)(flags), pw_unlock((lock), (cpu)))
#define pw_lock_local_irqsave(lock, flags) ((flags) = 0, pw_lock_local(lock))
#define pw_unlock_local_irqrestore(lock, flags) ((void)(flags), pw_unlock_local(lock))

/* Warns unless the caller holds this lock for some CPU. */
static inline void pw_lockdep_assert_held(pw_lock_t *lock)
{
	WARN_ON_ONCE(!uw_kernel_pw_is_held(uw_kernel_percpu(lock, 0)));
}

/* A function for one CPU's data. */
struct pw_struct {
	struct work_struct work;
	int cpu;
};

static inline void uw_kernel_init_pw(struct pw_struct *pw, work_func_t func, int cpu)
{
	INIT_WORK(&pw->work, func);
	pw->cpu = cpu;
}

#define INIT_PW(pw, func, c) uw_kernel_init_pw((pw), (func), (c))

/* Whether functions run in the thread that queues them. */
static inline bool uw_kernel_pw_is_on(void)
{
#ifdef UW_KERNEL_WITHOUT_PWLOCKS
	return false;
#else
	return uw_percpu_mode() != 0;
#endif
}

/* The same layout as struct uw_percpu_work. */
static inline struct uw_percpu_work *uw_kernel_pw(struct pw_struct *pw)
{
	return (struct uw_percpu_work *)pw;
}

/*
 * pwlocks=0: queues the item on that CPU. Otherwise: calls its function, which takes the lock of
 * pw_get_cpu(). A disabled item is refused in both cases.
 *
 * With pwlocks=0 and a queue that is not per-CPU it acts like queue_work_on(): the function runs
 * near that CPU, but perhaps not on it. A warning reports that once. The item is queued
 * nevertheless, because a lost drain would be worse; pw_get_cpu() returns the item's CPU wherever
 * it runs.
 */
static inline bool pw_queue_on(int cpu, struct workqueue_struct *wq, struct pw_struct *pw)
{
	if (!uw_kernel_pw_is_on()) {
		WARN_ONCE((uw_queue_flags(uw_kernel_queue(wq)) & (WQ_UNBOUND | WQ_PERCPU)) == WQ_UNBOUND,
			  "per-CPU work on a queue that is not per-CPU may run on another CPU\n");
		return queue_work_on(cpu, wq, &pw->work);
	}
	if (WARN_ON_ONCE(cpu != pw->cpu))
		cpu = pw->cpu;
	return uw_kernel_queued(uw_percpu_queue_on(uw_kernel_queue(wq), cpu, uw_kernel_pw(pw)));
}

/* Waits until the function has returned, also for calls of pw_queue_on() by other threads. */
static inline bool pw_flush(struct pw_struct *pw)
{
	if (!uw_kernel_pw_is_on())
		return flush_work(&pw->work);
	return uw_kernel_queued(uw_percpu_flush(uw_kernel_pw(pw)));
}

/*
 * The CPU whose data the function is for. With pwlocks=0 it is the CPU on which the function runs,
 * unless that CPU went offline meanwhile or the queue is not per-CPU. Even then it is the item's
 * CPU.
 */
static inline int pw_get_cpu(struct work_struct *work)
{
	return container_of(work, struct pw_struct, work)->cpu;
}

/* Whether it differs from the CPU on which the caller runs. */
static inline bool pw_is_cpu_remote(int cpu)
{
	return uw_kernel_pw_is_on() && cpu != smp_processor_id();
}

#endif
