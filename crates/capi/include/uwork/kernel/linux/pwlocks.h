/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Per-CPU work: locks on per-CPU data, and functions for one CPU's data, which run on that CPU (pwlocks=0) or where they
 * are queued (pwlocks=1). A pw_lock_t is a member of per-CPU data, and is given as that is: &percpu_variable.lock.
 *
 * UWORK_PWLOCKS says which: 0; 1; or 2, where functions run where they are queued too, and one's own CPU's lock is as
 * cheap as with 0. Without it, it is on if CPUs are isolated.
 *
 * A thread cannot be kept on its CPU. Between a _local lock and its unlock, smp_processor_id() and this_cpu_ptr() are
 * those of the CPU whose lock it has. With a cpu, it is that CPU's lock that is taken, also with pwlocks=0 and from
 * another CPU, where the kernel would lock the caller's.
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
/* Of the locks of all CPUs, the first CPU's. */
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

/* Of one CPU's lock: per_cpu_ptr(lock, cpu). Zero bytes are a lock, too. */
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

/* Macros, as they set the caller's flags. There are no interrupts. */
#define pw_lock_irqsave(lock, flags, cpu) ((flags) = 0, pw_lock((lock), (cpu)))
#define pw_trylock_irqsave(lock, flags, cpu) ((flags) = 0, pw_trylock((lock), (cpu)))
#define pw_unlock_irqrestore(lock, flags, cpu) ((void)(flags), pw_unlock((lock), (cpu)))
#define pw_lock_local_irqsave(lock, flags) ((flags) = 0, pw_lock_local(lock))
#define pw_unlock_local_irqrestore(lock, flags) ((void)(flags), pw_unlock_local(lock))

/* Warns unless the caller holds this lock, of some CPU. */
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

/* Whether functions run where they are queued. */
static inline bool uw_kernel_pw_is_on(void)
{
	return uw_percpu_mode() != 0;
}

/* The same as struct uw_percpu_work. */
static inline struct uw_percpu_work *uw_kernel_pw(struct pw_struct *pw)
{
	return (struct uw_percpu_work *)pw;
}

/*
 * Off: queues the item on that CPU. On: calls its function, which takes the lock of pw_get_cpu(). A disabled item is
 * refused either way.
 *
 * Off, and with a queue that is not per-CPU, it is as queue_work_on(): the function runs near that CPU, and need not be
 * on it. It is queued all the same, since a drain that is not queued would lose more, and pw_get_cpu() is the item's
 * CPU wherever it runs; a warning says so once.
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

/* Waits for the function to have run, also where other threads' pw_queue_on() are in it. */
static inline bool pw_flush(struct pw_struct *pw)
{
	return uw_kernel_queued(uw_percpu_flush(uw_kernel_pw(pw)));
}

/*
 * The CPU whose data the function is for. That is the CPU that it runs on with pwlocks=0, unless that one has gone away
 * meanwhile, or the queue is not per-CPU: then it is not the data of some other one.
 */
static inline int pw_get_cpu(struct work_struct *work)
{
	return container_of(work, struct pw_struct, work)->cpu;
}

/* Whether it is not the CPU that it runs on. */
static inline bool pw_is_cpu_remote(int cpu)
{
	return uw_kernel_pw_is_on() && cpu != smp_processor_id();
}

#endif
