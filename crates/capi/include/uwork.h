/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uwork.h: Linux workqueues in user space.
 *
 * A work item is a function and some words that you embed in your own data. A queue runs items on pools of
 * worker threads that know the machine's caches and nodes. Queueing allocates nothing, and takes no lock unless a
 * worker must be woken: uwork(7) has the exact table of what each call may do. An item is never queued twice and
 * never runs twice at once; it can be flushed, cancelled, disabled or delayed at any time.
 *
 * Answers. A function that returns an int returns 0 or more as its answer, or an errno with its sign turned.
 * A function that returns a pointer returns NULL and sets errno. uw_error_text() says in one line what was
 * wrong and what is allowed. With UWORK_DEBUG=objects in the environment, calls that no program makes on
 * purpose (marked with a *) end the process and say why.
 *
 *   EINVAL *          NULL, an item that was never initialised, a CPU below 0, enabled once too often
 *   EINVAL            out of range, flags that do not go together, not for this kind of queue
 *   EPERM             the item is disabled; * a system queue cannot be destroyed; * the caller does not hold the lock
 *   ESHUTDOWN         the queue drains and the caller is not one of its items; the process was shut down
 *   ESHUTDOWN *       the queue was destroyed
 *   EEXIST            a queue of that name is there; there was a setup already
 *   EAGAIN            no thread could be created
 *   ENOMEM            too many queues or pools; no memory
 *   EDEADLK           the caller would wait for itself, or end what it is inside of
 *   EOVERFLOW         the item is disabled 2047 times
 *   ETIMEDOUT         not done within the time
 *   EALREADY          the queues are frozen already
 *   EALREADY *        another call destroys the queue
 *   EBUSY             the library has started; the lock is held by somebody else; objects of the cache are
 *                     allocated; the signal cannot be had
 *   ECANCELED         the job was cancelled
 *   ESRCH             the thread has ended its task work
 *   ENOENT, EISDIR, ENOTDIR, EACCES   of an attribute: no such path, a folder, no folder, read only
 *   ERANGE            the mask has too little room
 *   EIO               the machine's description cannot be read
 *   EMFILE            no descriptor is left
 *   ENOSYS            not on this processor
 *   ENOTRECOVERABLE   a fault of the library's; uw_error_text() has its words
 *
 * Functions of items run on threads of the library. They may queue, wait, free their own item and create
 * threads; they must not longjmp out, must not end their thread (pthread_exit, pthread_cancel), and a C++
 * exception that leaves one ends the process. After fork() the child may use everything: it starts idle, and
 * what was pending runs in the parent only.
 */
#ifndef UWORK_H
#define UWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/* Some functions are named after the structure that they are about, which hides its constructor. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

/* The version of this header; uw_version() has that of the library. */
#define UW_VERSION "0.1.0"
#define UW_VERSION_MAJOR 0
#define UW_VERSION_MINOR 1
#define UW_VERSION_PATCH 0

const char *uw_version(void);

/* What was wrong with the last call of this thread that failed; "" if none did. Never NULL. */
const char *uw_error_text(void);

/* Frees a text that the library has made. NULL is fine. */
void uw_string_free(char *text);

/* ------------------------------------------------------------------------------------------ setup */

/* How the library learns that an item waits without uw_blocking(). UWORK_BLOCKING comes before it. */
enum uw_blocking_tier {
	UW_TIER_BEST,     /* the best that the system lets it use */
	UW_TIER_EVENTS,   /* by the kernel's records of context switches */
	UW_TIER_SAMPLING, /* by looking at the threads' states */
	UW_TIER_DECLARED  /* not at all */
};

/* How per-CPU data is locked, and reached from other CPUs. UWORK_PWLOCKS comes before it. */
enum uw_percpu_mode {
	UW_PERCPU_BEST,      /* remote if CPUs are isolated, else local */
	UW_PERCPU_LOCAL,     /* 0: fastest; another CPU's part is reached by a thread that runs there */
	UW_PERCPU_REMOTE,    /* 1: a spinlock; other CPUs' threads notice nothing */
	UW_PERCPU_ASYMMETRIC /* 2: as fast as 0; other CPUs' threads are interrupted for a moment */
};

/* Begin with UW_SETUP_INIT, then set what should be different. */
struct uw_setup {
	size_t size; /* sizeof(struct uw_setup) */
	unsigned blocking_tier;
	unsigned percpu_mode;
};

#define UW_SETUP_INIT { sizeof(struct uw_setup), UW_TIER_BEST, UW_PERCPU_BEST }

/*
 * What the process chooses, before anything else is called: the library starts with the first queue or dump.
 * EBUSY: it has started; EEXIST: there was a setup already. A way that the system refuses falls back to the next
 * one, and that is reported. Libraries had better leave this to the program.
 */
int uw_setup(const struct uw_setup *setup);

/* ------------------------------------------------------------------------------------------ items */

struct uw_work;
struct uw_queue;

/* What an item does. It gets the item, from which UW_CONTAINER_OF() gives what the item is a part of. */
typedef void (*uw_work_fn)(struct uw_work *work);

/*
 * A work item. Embed it and initialise it; leave what is in it alone, but for func, which may be read. It must
 * stay where it is, and not be freed, from the moment it is queued until its function was called or a
 * cancel has taken it back. The function may free it.
 */
struct uw_work {
	uint64_t uw_private[3];
	uw_work_fn func;
	uint64_t uw_place;
};

/* An item with a timer. While it is armed it is pending. */
struct uw_delayed_work {
	struct uw_work work;
	uint64_t uw_private[11];
};

/* An item that can be queued after a grace period. */
struct uw_rcu_work {
	struct uw_work work;
	uint64_t uw_private[2];
};

/* In an item that was never queued. */
#define UW_NOWHERE 0x00ffffff00000000ull
/* In a deferrable one: a byte that is 1. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define UW_MARK_DEFERRABLE (1ull << 56)
#else
#define UW_MARK_DEFERRABLE 1
#endif

/* Initialisers for variables: struct uw_work work = UW_WORK_INIT(function); */
/* clang-format off */
#define UW_WORK_INIT(fn) { { 0, 0, 0 }, (fn), UW_NOWHERE }
#define UW_DELAYED_WORK_INIT(fn) { UW_WORK_INIT(fn), { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } }
#define UW_DEFERRABLE_WORK_INIT(fn) \
	{ UW_WORK_INIT(fn), { 0, 0, 0, 0, 0, 0, 0, 0, UW_MARK_DEFERRABLE, 0, 0 } }
#define UW_RCU_WORK_INIT(fn) { UW_WORK_INIT(fn), { 0, 0 } }
/* clang-format on */

/* What has `member` at `pointer`. */
#define UW_CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

/* With uw_delayed_work_init(): the timer wakes nobody; it waits until a worker is up for something else. */
#define UW_DEFERRABLE 1u

/*
 * Make an idle item, whatever was there. Not while it is queued. `slack_ns`: how much later than its
 * deadline the timer may expire, so that several share a wake-up.
 */
void uw_work_init(struct uw_work *work, uw_work_fn func);
void uw_delayed_work_init(struct uw_delayed_work *work, uw_work_fn func, unsigned flags, uint64_t slack_ns);
void uw_rcu_work_init(struct uw_rcu_work *work, uw_work_fn func);

/* From the item that a function gets to the kind that it is. */
static inline struct uw_delayed_work *uw_to_delayed_work(struct uw_work *work)
{
	return UW_CONTAINER_OF(work, struct uw_delayed_work, work);
}

static inline struct uw_rcu_work *uw_to_rcu_work(struct uw_work *work)
{
	return UW_CONTAINER_OF(work, struct uw_rcu_work, work);
}

/* ----------------------------------------------------------------------------------------- queues */

/* What a queue is for. The numbers are those of the kernel's WQ_*. */
#define UW_BH (1u << 0)              /* one context on each CPU, in order; items must not wait */
#define UW_UNBOUND (1u << 1)         /* the default: in the pod of the CPU that queued */
#define UW_FREEZABLE (1u << 2)       /* takes part in uw_freeze_begin() */
#define UW_MEM_RECLAIM (1u << 3)     /* has a rescuer: makes progress without new threads */
#define UW_HIGHPRI (1u << 4)         /* workers at niceness -20, or the nearest allowed */
#define UW_CPU_INTENSIVE (1u << 5)   /* items compute for long */
#define UW_SYSFS (1u << 6)           /* its attributes are in the attribute tree */
#define UW_POWER_EFFICIENT (1u << 7) /* per-CPU; unbound with UWORK_POWER_EFFICIENT=1 */
#define UW_PERCPU (1u << 8)          /* on the CPU that queued */
#define UW_ORDERED (1u << 17)        /* one at a time, in the order of queueing */
/* The flags are taken by the kernel's rules: with no place given, the queue is per-CPU and that is reported. */
#define UW_KERNEL_RULES (1u << 31)

/* How far from the CPU that queued it an item of an unbound queue may run. */
enum uw_scope {
	UW_SCOPE_DEFAULT,
	UW_SCOPE_CPU,
	UW_SCOPE_SMT,
	UW_SCOPE_CLUSTER,
	UW_SCOPE_CACHE_SHARD,
	UW_SCOPE_CACHE,
	UW_SCOPE_NUMA,
	UW_SCOPE_SYSTEM
};

#define UW_NICE_UNSET (-2147483647 - 1)

/* Begin with UW_QUEUE_ATTRS_INIT, then set what should be different. */
struct uw_queue_attrs {
	size_t size;                  /* sizeof(struct uw_queue_attrs) */
	unsigned flags;               /* UW_*; 0 is unbound */
	unsigned max_active;          /* 1 to 2048; 0: 1024 */
	int nice;                     /* -20 to 19; UW_NICE_UNSET: 0 */
	unsigned scope;               /* enum uw_scope */
	bool strict;                  /* pods keep to themselves */
	bool dedicated;               /* one thread that serves this queue alone, in order: a kthread_worker */
	const unsigned long *cpumask; /* a bit for each CPU, as a cpu_set_t; NULL: all */
	size_t cpumask_bytes;         /* how many bytes that has */
};

#define UW_QUEUE_ATTRS_INIT { sizeof(struct uw_queue_attrs), 0, 0, UW_NICE_UNSET, UW_SCOPE_DEFAULT, false, false, NULL, 0 }

/*
 * A queue. The name has 1 to 31 bytes and is unique while the queue lives. `max_active`: how many items may
 * run at once (on each CPU, if it is per-CPU); 0: 1024. Threads are there afterwards, or it fails.
 */
struct uw_queue *uw_queue_create(const char *name, unsigned flags, unsigned max_active);
struct uw_queue *uw_queue_create_attrs(const char *name, const struct uw_queue_attrs *attrs);

/*
 * Waits until the queue is empty, refusing what others queue, and ends it. The handle must not be used any
 * more; calls that do so find that out (ESHUTDOWN) until its memory is used for another queue, which is after
 * 4096 others were destroyed. Armed items are let go of when they expire, unrun. Of two calls for one queue, the
 * second fails: EALREADY while the first is under way, ESHUTDOWN afterwards.
 */
int uw_queue_destroy(struct uw_queue *queue);

/* Waits until everything that was queued before this call has run. ETIMEDOUT: not all of it by then. */
int uw_queue_flush(struct uw_queue *queue);
int uw_queue_flush_timeout(struct uw_queue *queue, uint64_t timeout_ns);

/* Waits until the queue is empty. Meanwhile only its own items may queue more on it. */
int uw_queue_drain(struct uw_queue *queue);

/* 1 if nothing is queued and nothing runs. Out of date as soon as it is known. */
int uw_queue_is_idle(const struct uw_queue *queue);

/* The ready-made queues, made at first use. They stay. */
enum uw_system_queue {
	UW_SYSTEM_PERCPU,
	UW_SYSTEM_HIGHPRI,
	UW_SYSTEM_LONG,
	UW_SYSTEM_DFL,
	UW_SYSTEM_DFL_LONG,
	UW_SYSTEM_FREEZABLE,
	UW_SYSTEM_POWER_EFFICIENT,
	UW_SYSTEM_FREEZABLE_POWER_EFFICIENT,
	UW_SYSTEM_BH,
	UW_SYSTEM_BH_HIGHPRI
};

struct uw_queue *uw_system_queue(unsigned which);

/* Attributes, which can be changed while the queue is in use. Texts: the length, as of snprintf(). */
int uw_queue_name(const struct uw_queue *queue, char *buffer, size_t size);
int uw_queue_flags(const struct uw_queue *queue);
int uw_queue_max_active(const struct uw_queue *queue);
int uw_queue_set_max_active(struct uw_queue *queue, unsigned max_active);
int uw_queue_min_active(const struct uw_queue *queue);
int uw_queue_set_min_active(struct uw_queue *queue, unsigned min_active);
int uw_queue_scope(const struct uw_queue *queue, char *buffer, size_t size);
int uw_queue_set_scope(struct uw_queue *queue, unsigned scope);
int uw_queue_set_strict(struct uw_queue *queue, bool strict);
int uw_queue_set_nice(struct uw_queue *queue, int nice);
/* The number of the highest CPU in it, plus one; NULL asks only for that. */
int uw_queue_cpumask(const struct uw_queue *queue, unsigned long *mask, size_t bytes);
int uw_queue_set_cpumask(struct uw_queue *queue, const unsigned long *mask, size_t bytes);

/* 1 if items of the calling CPU, or of `cpu`, wait because as many run as may. A hint. */
int uw_queue_is_congested(const struct uw_queue *queue);
int uw_queue_is_congested_on(const struct uw_queue *queue, int cpu);

/* 0 if items can be queued for this CPU. */
int uw_queue_check_cpu(const struct uw_queue *queue, int cpu);

/* --------------------------------------------------------------------------------------- queueing */

/*
 * 1: it will run, and sees what was written before. 0: it was pending already; the coming run sees what was
 * written before. Less: it was not queued (EPERM: disabled; ESHUTDOWN: refused).
 *
 * _on: as if called on that CPU: there, on a per-CPU queue; in its pod, on an unbound one. _node: in a pod of
 * that NUMA node. Delays are in nanoseconds of the monotonic clock; 0 queues at once.
 */
int uw_queue_work(struct uw_queue *queue, struct uw_work *work);
int uw_queue_work_on(struct uw_queue *queue, int cpu, struct uw_work *work);
int uw_queue_work_node(struct uw_queue *queue, int node, struct uw_work *work);
int uw_queue_delayed_work(struct uw_queue *queue, struct uw_delayed_work *work, uint64_t delay_ns);
int uw_queue_delayed_work_on(struct uw_queue *queue, int cpu, struct uw_delayed_work *work, uint64_t delay_ns);

/* Sets the delay, whether the item was idle (1) or pending (0). */
int uw_mod_delayed_work(struct uw_queue *queue, struct uw_delayed_work *work, uint64_t delay_ns);
int uw_mod_delayed_work_on(struct uw_queue *queue, int cpu, struct uw_delayed_work *work, uint64_t delay_ns);

/* After a grace period: when every uw_rcu_read_lock() that is held now was given back. */
int uw_queue_rcu_work(struct uw_queue *queue, struct uw_rcu_work *work);

/* Takes one disable back, and queues the item if that was the last one. 1 if this queued it. */
int uw_enable_and_queue_work(struct uw_queue *queue, struct uw_work *work);

/* Read sides. They nest, and stay on their thread. */
int uw_rcu_read_lock(void);
int uw_rcu_read_unlock(void);
bool uw_rcu_is_read_locked(void);

/* -------------------------------------------------------------------------- waiting, taking back */

/*
 * For every kind of item: &delayed.work, &rcu.work. 1 if it was pending, 0 if not.
 *
 * _sync waits for a run that is going on; afterwards the item may be freed. Inside the item it does not wait.
 * Cancelling an armed item disarms it. Disables are counted: a disabled item cannot be queued.
 */
int uw_work_cancel(struct uw_work *work);
int uw_work_cancel_sync(struct uw_work *work);
int uw_work_disable(struct uw_work *work);
int uw_work_disable_sync(struct uw_work *work);

/* Takes one disable back: 1 if the item can be queued now. It is not queued by this. */
int uw_work_enable(struct uw_work *work);

/*
 * Waits until the item's last queueing has run: 1; 0 if it was idle, or the caller would wait for itself.
 * _helping: runs it here if it has not started and its queue allows that. Of an armed item,
 * uw_delayed_work_flush() queues it at once. uw_rcu_work_flush() waits for the grace period as well.
 */
int uw_work_flush(struct uw_work *work);
int uw_work_flush_helping(struct uw_work *work);
int uw_delayed_work_flush(struct uw_delayed_work *work);
int uw_rcu_work_flush(struct uw_rcu_work *work);

/* Out of date as soon as it is known. */
#define UW_BUSY_PENDING 1
#define UW_BUSY_RUNNING 2
int uw_work_is_pending(const struct uw_work *work);
int uw_work_busy(const struct uw_work *work);

/* ------------------------------------------------------------------------------------ inside items */

/*
 * Tells the pool that the item is about to wait: while `func` runs, another worker takes what is queued.
 * Outside of items it just calls it. 0.
 */
int uw_blocking(void (*func)(void *arg), void *arg);

/* The item that the calling thread runs; NULL outside of items, and inside a job. */
struct uw_work *uw_current_work(void);

/* Whether the calling thread is the rescuer of a UW_MEM_RECLAIM queue. */
bool uw_current_is_rescuer(void);

/* Says what the item that runs is about, for whoever looks. 1; 0 outside of items. 31 bytes are kept. */
int uw_set_worker_desc(const char *text);
int uw_work_description(const struct uw_work *work, char *buffer, size_t size);

/* ------------------------------------------------------------------------------- functions, CPUs */

/* A function that is queued without an item of yours; the library makes one. */
struct uw_job;

/* NULL if it cannot be queued. One of uw_job_join() and uw_job_detach() gives the job back. */
struct uw_job *uw_queue_spawn(struct uw_queue *queue, void *(*func)(void *arg), void *arg);

/* Waits for it, and runs it here if it has not started and its queue allows that. `result` may be NULL. */
int uw_job_join(struct uw_job *job, void **result);
int uw_job_cancel(const struct uw_job *job);
int uw_job_is_finished(const struct uw_job *job);
void uw_job_detach(struct uw_job *job);

/* Runs a function on a CPU, or on each CPU that the process may use, and waits. `result` may be NULL. */
int uw_work_on_cpu(int cpu, long (*func)(void *arg), void *arg, long *result);
int uw_on_each_cpu(void (*func)(int cpu, void *arg), void *arg);

/* CPUs of the machine. The number of the highest, plus one; a NULL mask asks only for that. */
enum uw_cpu_set { UW_CPUS_ALLOWED, UW_CPUS_POSSIBLE, UW_CPUS_ISOLATED };
int uw_cpus(unsigned which, unsigned long *mask, size_t bytes);
int uw_cpu_node(int cpu);

/* ---------------------------------------------------------------------------------- per-CPU data */

/*
 * What every CPU has for itself, under a lock of its own. The process is in one of three modes, which says how other
 * CPUs are reached, and who notices:
 *
 *   0  one's own CPU's lock without a locked instruction; a worker of the other CPU does what is wanted there
 *   1  a locked instruction; other CPUs' locks are taken right here, and they notice nothing
 *   2  no locked instruction; other CPUs' locks are taken right here, after an interrupt of that CPU
 *
 * UWORK_PWLOCKS=0, 1 or 2 chooses it, then uw_setup(); else it is 1 if CPUs are isolated, or 0. Where the system
 * cannot do 0 and 2, it is 1. The first use of what is below settles it, and so does the first queue.
 */
int uw_percpu_mode(void);
/* Why it is this mode. The length, as of snprintf(). */
int uw_percpu_reason(char *buffer, size_t size);

/*
 * A block of `size` zero bytes for each CPU that the machine can have, aligned as malloc() does. To be destroyed when
 * nobody uses it any more; EDEADLK: the caller holds a lock.
 */
struct uw_percpu;
struct uw_percpu *uw_percpu_create(size_t size);
int uw_percpu_destroy(struct uw_percpu *percpu);
/* How many CPUs have a block; they are counted from 0. */
int uw_percpu_cpus(const struct uw_percpu *percpu);

/*
 * Locks a block: that of the CPU that the caller is on, which it may leave then; or that of `cpu`. NULL: EDEADLK, the
 * caller holds it already; EBUSY, from trylock; EINVAL, no such CPU. To be held for a few instructions, and unlocked by
 * the thread that has locked it, before it ends: nobody else can.
 */
void *uw_percpu_lock_local(struct uw_percpu *percpu);
void *uw_percpu_trylock_local(struct uw_percpu *percpu);
void *uw_percpu_lock(struct uw_percpu *percpu, int cpu);
void *uw_percpu_trylock(struct uw_percpu *percpu, int cpu);
int uw_percpu_unlock(struct uw_percpu *percpu, void *block);
int uw_percpu_cpu_of(const struct uw_percpu *percpu, const void *block);

/*
 * Calls a function with a CPU's block, locked; or with that of each CPU. In mode 0 on those CPUs, and at the same time;
 * in modes 1 and 2 right here, one after the other. EDEADLK: the caller holds a lock; all other blocks were visited.
 */
int uw_percpu_with(struct uw_percpu *percpu, int cpu, void (*func)(int cpu, void *block, void *arg), void *arg);
int uw_percpu_for_each(struct uw_percpu *percpu, void (*func)(int cpu, void *block, void *arg), void *arg);

/* An item for one CPU's data. `cpu` may be read. */
struct uw_percpu_work {
	struct uw_work work;
	int cpu;
};

#define UW_PERCPU_WORK_INIT(fn, cpu) { UW_WORK_INIT(fn), (cpu) }

void uw_percpu_work_init(struct uw_percpu_work *work, uw_work_fn func, int cpu);

static inline struct uw_percpu_work *uw_to_percpu_work(struct uw_work *work)
{
	return UW_CONTAINER_OF(work, struct uw_percpu_work, work);
}

/*
 * Has the function called, which locks the block of the item's CPU: in mode 0 by `queue` on that CPU, once for all
 * calls before it starts (0: it was pending already); in modes 1 and 2 right here, before this returns 1, and by
 * several threads at once if they call this at once. EINVAL: the item is for another CPU; or, in mode 0, the queue has
 * neither UW_PERCPU nor UW_BH, and would call it elsewhere. EPERM: it is disabled.
 *
 * uw_percpu_flush() waits until it has returned for every call that began before, also of other threads; 0: there was
 * none, or, at once, the caller is in the function itself. Other waits for the struct uw_work, as that of
 * uw_work_cancel_sync(), know of calls in mode 0 only. uw_percpu_is_remote(): whether a function for that CPU's data
 * runs on another one, if it is called here; never in mode 0. A hint.
 */
int uw_percpu_queue_on(struct uw_queue *queue, int cpu, struct uw_percpu_work *work);
int uw_percpu_flush(struct uw_percpu_work *work);
bool uw_percpu_is_remote(int cpu);

/*
 * A cache of objects of one size: an allocator with a magazine for each CPU. `align` is a power of 2; 0: as malloc(). An
 * object may be freed on any CPU. _flush_all() empties the magazines of all CPUs, and says how many objects were in
 * them; _shrink() does so and gives memory back to the system, and says how many bytes. _destroy() is EBUSY while
 * objects are allocated, and changes nothing then.
 */
struct uw_percpu_cache;

struct uw_percpu_cache_stats {
	size_t objects;      /* in all of its memory */
	size_t out;          /* of these, allocated; exact while nobody allocates or frees */
	size_t in_magazines; /* free ones, in the magazines of CPUs */
	size_t bytes;        /* taken from the system */
};

struct uw_percpu_cache *uw_percpu_cache_create(const char *name, size_t size, size_t align);
void *uw_percpu_cache_alloc(struct uw_percpu_cache *cache);
void uw_percpu_cache_free(struct uw_percpu_cache *cache, void *object);
int64_t uw_percpu_cache_flush_all(struct uw_percpu_cache *cache);
int64_t uw_percpu_cache_shrink(struct uw_percpu_cache *cache);
int uw_percpu_cache_stats(const struct uw_percpu_cache *cache, struct uw_percpu_cache_stats *stats);
int uw_percpu_cache_destroy(struct uw_percpu_cache *cache);

/*
 * Pointers that are collected for each CPU, and handed on to `sink` up to `capacity` (1 to 2^20) at a time: by who adds
 * the last one, by _drain_all(), which reaches every CPU and says how many items it has handed on, and by _destroy().
 * At any time, by several threads at once; one of them at most is in _drain_all().
 *
 * When _drain_all() returns, the sink has returned for every item whose _add() had returned before the call, whichever
 * thread called it. EDEADLK, from that and from _destroy(): the caller is in the sink of this batch. A sink may add, but
 * must not wait for a thread that drains; the sinks of two batches must not drain each other's.
 */
struct uw_percpu_batch;

struct uw_percpu_batch *uw_percpu_batch_create(unsigned capacity,
					       void (*sink)(void *const *items, size_t count, void *arg), void *arg);
int uw_percpu_batch_add(struct uw_percpu_batch *batch, void *item);
int64_t uw_percpu_batch_drain_all(struct uw_percpu_batch *batch);
int uw_percpu_batch_destroy(struct uw_percpu_batch *batch);

/*
 * A number that every CPU adds to its part of. The sum has every addition before the call, and disturbs nobody; that of
 * NULL is 0.
 */
struct uw_percpu_counter;

struct uw_percpu_counter *uw_percpu_counter_create(void);
void uw_percpu_counter_add(struct uw_percpu_counter *counter, int64_t number);
int64_t uw_percpu_counter_sum(const struct uw_percpu_counter *counter);
int uw_percpu_counter_destroy(struct uw_percpu_counter *counter);

/* -------------------------------------------------------------------------------------- task work */

/*
 * Run this on that thread. A thread registers by asking for itself; whoever has it adds items, which the thread runs
 * itself, first in, first out, where it looks, and never in a signal handler.
 */
struct uw_task;
struct uw_task_work;
typedef void (*uw_task_work_fn)(struct uw_task_work *work);

/* As a work item: it stays where it is from when it is added until its function was called, or it was taken back. */
struct uw_task_work {
	uint64_t uw_private[3];
	uw_task_work_fn func;
};

/* How soon. The numbers of the kernel's TWA_*. */
enum uw_notify {
	UW_NOTIFY_NONE,   /* when the thread runs its items, or others */
	UW_NOTIFY_RESUME, /* at its next safe point; nobody is woken */
	UW_NOTIFY_SIGNAL  /* at once: its wait ends; once, until it has run its items */
};

/*
 * The calling thread, and one more reference to a thread. Each is given back by uw_task_put(), NULL is fine there. A
 * reference does not keep the thread alive.
 */
struct uw_task *uw_task_current(void);
struct uw_task *uw_task_get(const struct uw_task *task);
void uw_task_put(struct uw_task *task);

/* Makes an idle item, whatever was there. Not while it is in a list. */
void uw_task_work_init(struct uw_task_work *work, uw_task_work_fn func);

/* 1 if this call added the item, 0 if it is in a list already. ESRCH: the thread has ended. Allocates nothing. */
int uw_task_work_add(const struct uw_task *task, struct uw_task_work *work, unsigned notify);

/* Takes an item back that the thread has not yet taken off its list to run it. 1 if it was there, 0 if not. */
int uw_task_work_cancel(const struct uw_task *task, struct uw_task_work *work);

/*
 * The same, of the oldest item for which `match` says so; NULL with ENOENT if it says so of none. `match` is called
 * under a lock: it must not call for the same thread, nor longjmp out.
 */
struct uw_task_work *uw_task_work_cancel_match(const struct uw_task *task,
					       bool (*match)(struct uw_task_work *work, void *arg), void *arg);
int uw_task_work_is_pending(const struct uw_task_work *work);

/*
 * For the calling thread; how many items were run. Until nothing is left; what is there; the same, if the thread was
 * told of it (UW_NOTIFY_RESUME, UW_NOTIFY_SIGNAL), which costs a nanosecond or two where it was not.
 */
int uw_task_run(void);
int uw_task_run_once(void);
int uw_task_safe_point(void);
bool uw_task_is_notified(void);

/*
 * Sleeps until there is something to run, for so long at most (less than 0: without a bound), and runs it: how many
 * items that were, perhaps 0. After uw_task_exit() nothing comes any more: without a bound it sleeps for ever.
 */
int uw_task_park(int64_t timeout_ns);

/*
 * Waits of your own. uw_task_fd(): a descriptor for poll, epoll and so on, the same at each call. It becomes readable
 * while the thread is in uw_task_wait(), when it is told to run something; at other times it says nothing.
 * uw_task_wait() calls `wait`, which waits for it, and answers what that answers; EINTR if there is something to run
 * already, and then `wait` was not called. Runs no item.
 */
int uw_task_fd(void);
int uw_task_wait(int (*wait)(void *arg), void *arg);

/*
 * System calls that end when the thread is told, also where that comes just before the call. uw_task_read() runs the
 * items and reads on. uw_task_syscall() answers EINTR, and then the call has done nothing: six arguments, and an
 * answer as the kernel gives it.
 */
ptrdiff_t uw_task_read(int fd, void *buffer, size_t size);
long uw_task_syscall(long number, const long *arguments);

/* How the calling thread is told. EBUSY: each real-time signal has a handler. */
enum uw_delivery {
	UW_DELIVERY_AUTO,  /* declared waits as such, everything else by a signal */
	UW_DELIVERY_LIGHT, /* never by a signal, outside of the two calls above: all waits are declared */
	UW_DELIVERY_SIGNAL /* always by a signal */
};
int uw_task_set_delivery(unsigned delivery);

/*
 * The signal, SIGRTMIN to SIGRTMAX, before the first thread registers; otherwise the highest without a handler.
 * `restarts`: with SA_RESTART. EBUSY: it was chosen before.
 */
int uw_task_set_signal(int number, bool restarts);

/* Runs what was added, ends the thread's task work, as its end would; what is added later comes back. */
int uw_task_exit(void);

/* ------------------------------------------------------------------------------------- looking in */

/*
 * A picture of everything, of one queue, or of the queues that have all of these flags, as text for
 * uw_string_free(). Stops nothing.
 */
char *uw_dump(void);
char *uw_queue_dump(const struct uw_queue *queue);
char *uw_dump_queues(unsigned flags);

/*
 * The attribute tree, with the kernel's names: "devices/NAME/affinity_scope", "cpumask",
 * "module/parameters/cpu_intensive_thresh_us". uw_sysfs_get() answers with the length, as snprintf();
 * uw_sysfs_list() with a line for each entry, a folder's with a / at its end, for uw_string_free().
 */
int uw_sysfs_get(const char *path, char *buffer, size_t size);
int uw_sysfs_set(const char *path, const char *value);
int uw_sysfs_list(const char *path, char **list);

/* Called with every report, in one line, instead of standard error. Once for each process. */
int uw_set_reporter(void (*reporter)(const char *text));

/*
 * The watchdog: work that waits with nothing moving for the threshold, 30 s by default, is reported once, with
 * who is in the way. 0 turns it off. uw_watchdog_touch(): the item that calls takes long, and is fine.
 */
uint64_t uw_watchdog_thresh(void);
void uw_watchdog_set_thresh(uint64_t thresh_ns);
void uw_watchdog_touch(void);

/* How many runs have ended in a panic of Rust code. */
uint64_t uw_panics(void);

/* ------------------------------------------------------------------------------ freezing, the end */

/* Queues with UW_FREEZABLE start nothing new from here on. uw_freeze_is_busy(): 1 while something runs. */
int uw_freeze_begin(void);
int uw_freeze_is_busy(void);
int uw_thaw(void);

enum uw_shutdown_how {
	UW_DRAIN, /* what is queued runs */
	UW_CANCEL /* what has not started is let go of */
};

/*
 * Ends the work of all queues within `timeout_ns`. ETIMEDOUT: not all of it; the report says what. `report`
 * may be NULL; it is for uw_string_free(). There is no way back.
 */
int uw_shutdown(unsigned how, uint64_t timeout_ns, char **report);

/*
 * For allocators: this memory is being freed. With UWORK_DEBUG=objects the process ends if an item in it is
 * queued; otherwise nothing.
 */
void uw_debug_check_freed(const void *memory, size_t size);

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif

#endif
