/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uwork.h: Linux workqueues in user space.
 *
 * A work item is a function and some words that you embed in your own data. A queue runs items on
 * pools of worker threads that follow the machine's caches and NUMA nodes. Queueing allocates
 * nothing, and takes no lock unless a worker must be woken: uwork(7) has the exact table of what
 * each call may do. An item is never queued twice and never run by two threads at once. It can be
 * flushed, cancelled, disabled or delayed at any time.
 *
 * Results. A function that returns an int returns 0 or more on success, and a negative errno value
 * on failure. A function that returns a pointer returns NULL and sets errno on failure.
 * uw_error_text() describes the error in one line, with the permitted values. Errors marked with *
 * are always bugs of the program. With UWORK_DEBUG=objects in the environment, such a call ends the
 * process with a message. The manual page of each call lists its errors.
 *
 *   EINVAL *          NULL; an uninitialised item; a CPU below 0; more enables than disables
 *   EINVAL            a value out of range; conflicting flags; not possible for this kind of queue
 *   EPERM             the item is disabled
 *   EPERM *           a system queue cannot be destroyed; the caller does not hold the lock
 *   ESHUTDOWN         the queue drains and the caller is not one of its items; the process was shut
 *                     down
 *   ESHUTDOWN *       the queue was destroyed
 *   EEXIST            a queue of that name exists; a setup or reporter was installed before
 *   EAGAIN            no thread could be created
 *   ENOMEM            too many queues or pools; no memory
 *   EDEADLK           the caller would wait for itself, or destroy the object that it runs in
 *   EOVERFLOW         the item is disabled 2047 times
 *   ETIMEDOUT         not finished within the time
 *   EALREADY          the queues are already frozen
 *   EALREADY *        another call is destroying the queue
 *   EBUSY             the library has started; the lock is held; objects of the cache are allocated;
 *                     no signal is available, or it was chosen before
 *   ECANCELED         the job was cancelled, or is that of the parent of a forked child
 *   EINTR             the wait was ended by a notification or a signal
 *   ESRCH             the thread has ended its task work, or ends itself
 *   ENOENT, EISDIR, ENOTDIR, EACCES
 *                     of an attribute: it does not exist; it is a directory; it is not a directory;
 *                     it is read-only. ENOENT also: no item matches
 *   EBADF             the descriptor is not open
 *   ERANGE            the mask is too small
 *   EIO               the machine's description cannot be read
 *   EMFILE            the process has no descriptor left
 *   ENOSYS            not available on this processor
 *   ENOTRECOVERABLE   an internal error or a panic of Rust code; uw_error_text() has its message
 *
 * Memory. A call that creates or describes something fails with ENOMEM, and has done nothing, unless
 * the system has some megabytes to give (RLIMIT_AS, RLIMIT_DATA, strict overcommit). Frequent calls
 * that allocate (uw_queue_spawn(), uw_bounded_spawn(), uw_task_current(), uw_percpu_cache_alloc())
 * fail if they do not get what they need themselves. EAGAIN if memory for a thread is missing. A call
 * that has begun, and the library's threads, go on when malloc() fails: the library has 4 MiB in
 * reserve, of addresses, and of memory once it is used. The process ends with a message if that is
 * used up, and with one of the C library if a new thread does not get its first bytes of malloc().
 *
 * Functions of items run on threads of the library. They may queue, wait, free their own item and
 * create threads. They must not longjmp out, and must not end their thread (pthread_exit,
 * pthread_cancel): such a function, or one that a C++ exception leaves, ends the process with a
 * message. After fork() the child may use everything: it starts idle, and items that were pending
 * run in the parent only.
 *
 * No function is a cancellation point. A thread that is cancelled (pthread_cancel, deferred) inside
 * one ends at its first cancellation point after the call, and functions that the call runs on this
 * thread do not end either. The library's threads cannot be cancelled. Asynchronous cancellation is
 * not supported, as by most of the C library.
 */
#ifndef UWORK_H
#define UWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/*
 * Some functions have the name of the structure that they are about, which hides its constructor.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

/*
 * The version of this header, as numbers and as text, for example "1.2.3". uw_version() returns the
 * library's.
 */
#define UW_VERSION_MAJOR 0
#define UW_VERSION_MINOR 2
#define UW_VERSION_PATCH 0
#define UW_VERSION UW_VERSION_TEXT_(UW_VERSION_MAJOR, UW_VERSION_MINOR, UW_VERSION_PATCH)
#define UW_VERSION_TEXT_(major, minor, patch) UW_VERSION_JOIN_(major, minor, patch)
#define UW_VERSION_JOIN_(major, minor, patch) #major "." #minor "." #patch

const char *uw_version(void);

/* The error text of this thread's last call that failed; "" if none failed. Never NULL. */
const char *uw_error_text(void);

/* Frees a text that the library allocated. NULL is allowed. */
void uw_string_free(char *text);

/* ------------------------------------------------------------------------------------------ setup */

/*
 * How the library detects that an item blocks without uw_blocking(). UWORK_BLOCKING overrides it.
 */
enum uw_blocking_tier {
	UW_TIER_BEST,     /* the best one that the system permits */
	UW_TIER_EVENTS,   /* by the kernel's records of context switches */
	UW_TIER_SAMPLING, /* by sampling the threads' states */
	UW_TIER_DECLARED, /* not at all */
	UW_TIER_STANDBY   /* by threads that run when a CPU becomes idle; and by one of the first two */
};

/* How per-CPU data is locked and reached from other CPUs. UWORK_PWLOCKS overrides it. */
enum uw_percpu_mode {
	UW_PERCPU_BEST,      /* remote if CPUs are isolated, otherwise local */
	UW_PERCPU_LOCAL,     /* 0: fastest; another CPU's part is reached by a worker of that CPU */
	UW_PERCPU_REMOTE,    /* 1: a spinlock; the threads of other CPUs are not disturbed */
	UW_PERCPU_ASYMMETRIC /* 2: as fast as 0; a remote access briefly interrupts that CPU */
};

/*
 * Whether queues with UW_POWER_EFFICIENT save power at the start. UWORK_POWER_EFFICIENT overrides
 * it, and uw_sysfs_set("module/parameters/power_efficient", ..) changes it later.
 */
enum uw_power {
	UW_POWER_DEFAULT,     /* as UW_POWER_PERFORMANCE */
	UW_POWER_PERFORMANCE, /* they are per-CPU queues */
	UW_POWER_SAVE         /* they are unbound, share one pool of unpinned workers, and save wakes */
};

/* Begin with UW_SETUP_INIT, then change members. */
struct uw_setup {
	size_t size; /* sizeof(struct uw_setup) */
	unsigned blocking_tier;
	unsigned percpu_mode;
	unsigned power;
	/*
	 * How many workers a pool may have, together with those that it shares items with. 0: as many
	 * as its queues' limits allow. UWORK_WORKERS overrides it, and
	 * uw_sysfs_set("module/parameters/pool_workers_max", ..) changes it later.
	 */
	unsigned pool_workers_max;
	/*
	 * The size of the stacks of all threads that run items, in bytes, 128 KiB to 1 TiB. 0: as plain
	 * threads, whose stacks have the size of `ulimit -s` at the start of the program, or 2 MiB if it
	 * is unlimited. The variables of a thread (__thread) are not taken from it: stacks are larger by
	 * them. UWORK_STACK overrides it.
	 */
	size_t stack_size;
};

#define UW_SETUP_INIT { sizeof(struct uw_setup), UW_TIER_BEST, UW_PERCPU_BEST, UW_POWER_DEFAULT, 0, 0 }

/*
 * Choices for the whole process. Call it before everything else: the first queue or dump starts the
 * library. EINVAL: a value is not allowed, and the error text says which are; EBUSY: the library
 * has started; EEXIST: a setup was installed before. If the system refuses a choice, the library
 * uses the next one and reports that. Libraries should leave this call to the program.
 */
int uw_setup(const struct uw_setup *setup);

/* ------------------------------------------------------------------------------------------ items */

struct uw_work;
struct uw_queue;

/*
 * The function of an item. Its argument is the item; UW_CONTAINER_OF() converts it to the structure
 * that contains it.
 */
typedef void (*uw_work_fn)(struct uw_work *work);

/*
 * A work item. Embed it and initialise it. Its members are private, except that func may be read.
 * It must stay in place, and must not be freed, from the moment it is queued until its function is
 * called or it is cancelled. The function may free it.
 */
struct uw_work {
	uint64_t uw_private[3];
	uw_work_fn func;
	uint64_t uw_place;
};

/* An item with a timer. It is pending while the timer is armed. */
struct uw_delayed_work {
	struct uw_work work;
	uint64_t uw_private[11];
};

/* An item that can be queued after a grace period. */
struct uw_rcu_work {
	struct uw_work work;
	uint64_t uw_private[2];
};

/* The last word of an item that was never queued. */
#define UW_NOWHERE 0x00ffffff00000000ull
/* The mark of a deferrable item: a byte with the value 1. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define UW_MARK_DEFERRABLE (1ull << 56)
#else
#define UW_MARK_DEFERRABLE 1
#endif

/* Static initialisers: struct uw_work work = UW_WORK_INIT(function); */
/* clang-format off */
#define UW_WORK_INIT(fn) { { 0, 0, 0 }, (fn), UW_NOWHERE }
#define UW_DELAYED_WORK_INIT(fn) { UW_WORK_INIT(fn), { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } }
#define UW_DEFERRABLE_WORK_INIT(fn) \
	{ UW_WORK_INIT(fn), { 0, 0, 0, 0, 0, 0, 0, 0, UW_MARK_DEFERRABLE, 0, 0 } }
#define UW_RCU_WORK_INIT(fn) { UW_WORK_INIT(fn), { 0, 0 } }
/* clang-format on */

/* The structure of this type whose `member` is at `pointer`. */
#define UW_CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

/* For uw_delayed_work_init(): the timer wakes no idle CPU. It expires when a worker runs anyway. */
#define UW_DEFERRABLE 1u

/*
 * Initialise an idle item and overwrite its previous content. Not allowed while it is queued.
 * `slack_ns` is how much later than its deadline the timer may expire, so that several timers share
 * a wake-up. A slack beyond INT64_MAX counts as 0.
 */
void uw_work_init(struct uw_work *work, uw_work_fn func);
void uw_delayed_work_init(struct uw_delayed_work *work, uw_work_fn func, unsigned flags, uint64_t slack_ns);
void uw_rcu_work_init(struct uw_rcu_work *work, uw_work_fn func);

/* Convert the argument of a function to the kind of its item. */
static inline struct uw_delayed_work *uw_to_delayed_work(struct uw_work *work)
{
	return UW_CONTAINER_OF(work, struct uw_delayed_work, work);
}

static inline struct uw_rcu_work *uw_to_rcu_work(struct uw_work *work)
{
	return UW_CONTAINER_OF(work, struct uw_rcu_work, work);
}

/* ----------------------------------------------------------------------------------------- queues */

/* The kinds and properties of queues. The values are those of the kernel's WQ_*. */
#define UW_BH (1u << 0)              /* one context on each CPU, in order; items must not wait */
#define UW_UNBOUND (1u << 1)         /* the default: in the submitter's pod */
#define UW_FREEZABLE (1u << 2)       /* frozen by uw_freeze_begin() */
#define UW_MEM_RECLAIM (1u << 3)     /* has a rescuer: makes progress without new threads */
#define UW_HIGHPRI (1u << 4)         /* workers at niceness -20, or the nearest permitted one */
#define UW_CPU_INTENSIVE (1u << 5)   /* items compute for long */
#define UW_SYSFS (1u << 6)           /* its attributes are in the attribute tree */
#define UW_POWER_EFFICIENT (1u << 7) /* per-CPU; unbound while power is saved */
#define UW_PERCPU (1u << 8)          /* on the submitter's CPU */
#define UW_ORDERED (1u << 17)        /* one item at a time, in the order of queueing */
/*
 * A forked child runs the items that were pending at the fork, from its first submission or wait on.
 * Without this flag they are idle in the child. Armed timers are always idle there.
 */
#define UW_FORK_INHERITED (1u << 23)
/* If the name is taken, the queue gets the first free one of name#2, name#3 and so on. */
#define UW_NUMBERED (1u << 30)
/*
 * The flags follow the kernel's rules: without a placement flag the queue is per-CPU, with a
 * report.
 */
#define UW_KERNEL_RULES (1u << 31)

/* Affinity scopes: how far from the submitter's CPU an item of an unbound queue may run. */
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

/* Begin with UW_QUEUE_ATTRS_INIT, then change members. */
struct uw_queue_attrs {
	size_t size;                  /* sizeof(struct uw_queue_attrs) */
	unsigned flags;               /* UW_*; 0 makes it unbound */
	unsigned max_active;          /* 1 to 2048; 0 selects 1024 */
	int nice;                     /* -20 to 19; UW_NICE_UNSET: the process's at the first use */
	unsigned scope;               /* enum uw_scope */
	bool strict;                  /* pods never share their work */
	bool dedicated;               /* one thread serves this queue alone, in order: a kthread_worker */
	const unsigned long *cpumask; /* one bit for each CPU, as in a cpu_set_t; NULL selects all */
	size_t cpumask_bytes;         /* the size of cpumask in bytes */
};

#define UW_QUEUE_ATTRS_INIT { sizeof(struct uw_queue_attrs), 0, 0, UW_NICE_UNSET, UW_SCOPE_DEFAULT, false, false, NULL, 0 }

/*
 * Creates a queue. The name has 1 to 31 bytes and is unique while the queue exists (see also
 * UW_NUMBERED). `max_active` is how many items may run at the same time: on each CPU for a per-CPU
 * queue; on the whole machine for an unbound one, where each NUMA node gets its share in proportion
 * to its CPUs (uw_queue_set_min_active()). 0 selects 1024. On success the queue's threads exist.
 */
struct uw_queue *uw_queue_create(const char *name, unsigned flags, unsigned max_active);
struct uw_queue *uw_queue_create_attrs(const char *name, const struct uw_queue_attrs *attrs);

/*
 * Waits until the queue is empty, while it refuses new items, and destroys it. The handle must not
 * be used afterwards. Such calls are detected (ESHUTDOWN) until its memory is reused for another
 * queue, which is after 4096 further queues were destroyed. An armed item is dropped without a run
 * when its timer expires. Of two calls for one queue the second fails: with EALREADY during the
 * first call, with ESHUTDOWN after it.
 */
int uw_queue_destroy(struct uw_queue *queue);

/*
 * Waits until everything that was queued before this call has run. ETIMEDOUT: not within the time.
 */
int uw_queue_flush(struct uw_queue *queue);
int uw_queue_flush_timeout(struct uw_queue *queue, uint64_t timeout_ns);

/* Waits until the queue is empty. Meanwhile only its own items may queue further items on it. */
int uw_queue_drain(struct uw_queue *queue);

/*
 * Starts no more items of this queue, and waits until those that run have ended. Items that are
 * queued, before or meanwhile, wait in order for uw_queue_resume(). Other queues are not affected.
 * Pauses are counted. EDEADLK: from an item of this queue. ETIMEDOUT: items still run; the call has
 * paused nothing. uw_queue_resume() fails with EINVAL if the queue is not paused. The end of the
 * queue ends its pauses.
 */
int uw_queue_pause(struct uw_queue *queue);
int uw_queue_pause_timeout(struct uw_queue *queue, uint64_t timeout_ns);
int uw_queue_resume(struct uw_queue *queue);
int uw_queue_is_paused(const struct uw_queue *queue);

/* 1 if no item is queued and none runs. The result may be outdated immediately. */
int uw_queue_is_idle(const struct uw_queue *queue);

/* The system queues. Each is created at its first use and is never destroyed. */
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

/*
 * Attributes. They can be changed while the queue is in use. Functions that write a text return its
 * length, like snprintf().
 */
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
/*
 * The number of the highest CPU in the mask, plus one. With a NULL mask it only returns that
 * number.
 */
int uw_queue_cpumask(const struct uw_queue *queue, unsigned long *mask, size_t bytes);
int uw_queue_set_cpumask(struct uw_queue *queue, const unsigned long *mask, size_t bytes);

/*
 * How much later than their deadlines timers of the queue may expire, in nanoseconds, so that they
 * share wake-ups; 0 at first. A change is for timers that are armed from now on. An item with a
 * longer slack of its own keeps it.
 */
int64_t uw_queue_timer_slack(const struct uw_queue *queue);
int uw_queue_set_timer_slack(struct uw_queue *queue, uint64_t slack_ns);

/* 1 if items of the pod of the calling CPU, or of `cpu`, wait because max_active is reached. A hint. */
int uw_queue_is_congested(const struct uw_queue *queue);
int uw_queue_is_congested_on(const struct uw_queue *queue, int cpu);

/* 0 if items can be queued on this CPU. */
int uw_queue_check_cpu(const struct uw_queue *queue, int cpu);

/* --------------------------------------------------------------------------------------- queueing */

/*
 * 1: the item will run, and that run sees the caller's earlier writes. 0: it was already pending;
 * the coming run sees the caller's earlier writes. Negative: it was not queued (EPERM: disabled;
 * ESHUTDOWN: refused).
 *
 * _on queues for that CPU. While it is busy, other CPUs take items of an unbound queue from it: those
 * of its pod only if the queue is strict. _node queues for the calling CPU if it is on that NUMA node,
 * else for the node's first, or for an idle CPU of that one's pod. Delays are in nanoseconds of the
 * monotonic clock; 0 queues immediately. A delay beyond INT64_MAX was a negative number: EINVAL.
 */
int uw_queue_work(struct uw_queue *queue, struct uw_work *work);
int uw_queue_work_on(struct uw_queue *queue, int cpu, struct uw_work *work);
int uw_queue_work_node(struct uw_queue *queue, int node, struct uw_work *work);
int uw_queue_delayed_work(struct uw_queue *queue, struct uw_delayed_work *work, uint64_t delay_ns);
int uw_queue_delayed_work_on(struct uw_queue *queue, int cpu, struct uw_delayed_work *work, uint64_t delay_ns);

/* Sets the delay of an item that was idle (returns 1) or pending (returns 0). */
int uw_mod_delayed_work(struct uw_queue *queue, struct uw_delayed_work *work, uint64_t delay_ns);
int uw_mod_delayed_work_on(struct uw_queue *queue, int cpu, struct uw_delayed_work *work, uint64_t delay_ns);

/* Queues the item after a grace period: when every read side that is held now has ended. */
int uw_queue_rcu_work(struct uw_queue *queue, struct uw_rcu_work *work);

/*
 * Undoes one disable, and queues the item if that was the last one. Returns 1 if this call queued
 * it.
 */
int uw_enable_and_queue_work(struct uw_queue *queue, struct uw_work *work);

/*
 * Read sides. They nest, and end on the thread that began them. Those of a thread that forks hold in
 * the child too, until it ends them there.
 */
int uw_rcu_read_lock(void);
int uw_rcu_read_unlock(void);
bool uw_rcu_is_read_locked(void);

/* --------------------------------------------------------------------------- waiting, cancelling */

/*
 * For every kind of item: pass &delayed.work or &rcu.work. Returns 1 if the item was pending, 0 if
 * not.
 *
 * The _sync functions also wait for a run in progress; afterwards the item may be freed. Inside the
 * item itself they do not wait. Cancelling an armed item disarms it. Disables are counted: a
 * disabled item cannot be queued.
 */
int uw_work_cancel(struct uw_work *work);
int uw_work_cancel_sync(struct uw_work *work);
int uw_work_disable(struct uw_work *work);
int uw_work_disable_sync(struct uw_work *work);

/* Undoes one disable. Returns 1 if the item can be queued now. Does not queue it. */
int uw_work_enable(struct uw_work *work);

/*
 * Waits until the item's last queueing has run. Returns 1; 0 if the item was idle or the caller
 * would wait for itself. _helping runs the item on the caller's stack if it has not started and its
 * queue allows that. uw_delayed_work_flush() queues an armed item immediately. uw_rcu_work_flush()
 * also waits for the grace period.
 */
int uw_work_flush(struct uw_work *work);
int uw_work_flush_helping(struct uw_work *work);
int uw_delayed_work_flush(struct uw_delayed_work *work);
int uw_rcu_work_flush(struct uw_rcu_work *work);

/* The results may be outdated immediately. */
#define UW_BUSY_PENDING 1
#define UW_BUSY_RUNNING 2
int uw_work_is_pending(const struct uw_work *work);
int uw_work_busy(const struct uw_work *work);

/* ------------------------------------------------------------------------------------ inside items */

/*
 * Declares to the pool that the item blocks: while `func` runs, another worker takes the queued
 * items. Outside of items and in thread hooks it only calls `func`. Returns 0.
 */
int uw_blocking(void (*func)(void *arg), void *arg);

/*
 * Calls `func` on all CPUs of the item's pod: for programs and threads that it starts. Elsewhere in
 * an item they inherit the one CPU to which the worker is pinned, and sched_getaffinity() and nproc
 * answer 1. Nests; outside of items it only calls `func`. Returns 0.
 */
int uw_unpinned(void (*func)(void *arg), void *arg);

/* The item that the calling thread runs; NULL outside of items and inside a job. */
struct uw_work *uw_current_work(void);

/* Whether the calling thread is the rescuer of a UW_MEM_RECLAIM queue. */
bool uw_current_is_rescuer(void);

/*
 * Describes the running item, for dumps and for uw_work_description(). Keeps 31 bytes. Returns 1; 0
 * outside of items.
 */
int uw_set_worker_desc(const char *text);
int uw_work_description(const struct uw_work *work, char *buffer, size_t size);

/* ------------------------------------------------------------------------------- functions, CPUs */

/* A function that is queued without an item of yours. The library allocates one. */
struct uw_job;

/* NULL on failure. A join or uw_job_detach() frees the job. */
struct uw_job *uw_queue_spawn(struct uw_queue *queue, void *(*func)(void *arg), void *arg);

/*
 * Waits for the job, and runs it on the caller's stack if it has not started and its queue allows
 * that. `result` may be NULL. In a forked child a job that had not finished at the fork fails with
 * ECANCELED, because it runs in the parent only; uw_job_is_finished() returns 1 for it.
 */
int uw_job_join(struct uw_job *job, void **result);
/*
 * The same, but the caller never runs the job: for jobs that need a worker, for example its
 * uw_thread_state(). EDEADLK in every item of the job's queue.
 */
int uw_job_join_waiting(struct uw_job *job, void **result);
int uw_job_cancel(const struct uw_job *job);
int uw_job_is_finished(const struct uw_job *job);
void uw_job_detach(struct uw_job *job);

/*
 * A bound on the jobs and items that wait in a queue. A job occupies a place until it starts or is
 * cancelled. _spawn() waits for a place, _try_spawn() does not (EAGAIN), _spawn_timeout() waits for
 * a while (ETIMEDOUT). From an item of the queue only the functions with _try are allowed (EDEADLK).
 * An item of yours reserves a place before it is queued, and its function releases it first.
 * uw_bounded_destroy() leaves the queue alone. `capacity` is 1 to 2^40 - 1 (EINVAL). In a forked child
 * all places are free, except those that items of a queue with UW_FORK_INHERITED have: a place that was
 * reserved before the fork is not released there (EINVAL).
 */
struct uw_bounded;

struct uw_bounded *uw_bounded_create(struct uw_queue *queue, size_t capacity);
void uw_bounded_destroy(struct uw_bounded *bounded);
struct uw_job *uw_bounded_spawn(struct uw_bounded *bounded, void *(*func)(void *arg), void *arg);
struct uw_job *uw_bounded_try_spawn(struct uw_bounded *bounded, void *(*func)(void *arg), void *arg);
struct uw_job *uw_bounded_spawn_timeout(struct uw_bounded *bounded, void *(*func)(void *arg), void *arg,
					uint64_t timeout_ns);
int uw_bounded_reserve(struct uw_bounded *bounded);
int uw_bounded_try_reserve(struct uw_bounded *bounded);
int uw_bounded_reserve_timeout(struct uw_bounded *bounded, uint64_t timeout_ns);
int uw_bounded_release(struct uw_bounded *bounded);

/*
 * Runs a function on a CPU, or on each CPU that the process may use, and waits. `result` may be
 * NULL.
 */
int uw_work_on_cpu(int cpu, long (*func)(void *arg), void *arg, long *result);
int uw_on_each_cpu(void (*func)(int cpu, void *arg), void *arg);

/*
 * Sets of CPUs. Returns the number of the highest CPU, plus one; with a NULL mask it only returns
 * that number.
 */
enum uw_cpu_set { UW_CPUS_ALLOWED, UW_CPUS_POSSIBLE, UW_CPUS_ISOLATED };
int uw_cpus(unsigned which, unsigned long *mask, size_t bytes);
int uw_cpu_node(int cpu);

/* ---------------------------------------------------------------------------------- per-CPU data */

/*
 * Per-CPU data: a block for each CPU, each with its own lock. The process is in one of three modes.
 * The mode says how locks are taken and how other CPUs' blocks are reached:
 *
 *   0  The own CPU's lock takes no locked instruction. A worker of the other CPU does remote accesses.
 *   1  Every lock takes a locked instruction. The caller takes remote locks; their CPUs are not
 *      disturbed.
 *   2  The own CPU's lock takes no locked instruction. The caller takes remote locks, after an
 *      interrupt of their CPU.
 *
 * UWORK_PWLOCKS=0, 1 or 2 selects the mode, then uw_setup(). By default it is 1 if CPUs are
 * isolated, and 0 otherwise. If the system does not support 0 and 2, it is 1. The first use of
 * per-CPU data or of a queue fixes the mode.
 */
int uw_percpu_mode(void);
/* The reason for the mode, as text. Returns its length, like snprintf(). */
int uw_percpu_reason(char *buffer, size_t size);

/*
 * A block of `size` zero bytes for each CPU that the machine can have, aligned like malloc().
 * Destroy it when no thread uses it any more. EDEADLK: the caller holds a lock.
 */
struct uw_percpu;
struct uw_percpu *uw_percpu_create(size_t size);
int uw_percpu_destroy(struct uw_percpu *percpu);
/* How many CPUs have a block. They are numbered from 0. */
int uw_percpu_cpus(const struct uw_percpu *percpu);

/*
 * Locks a block: that of the caller's CPU, which the caller may leave afterwards; or that of `cpu`.
 * On failure NULL with errno: EDEADLK, the caller already holds it; EBUSY (trylock), it is held;
 * EINVAL, no such CPU. Hold it for a few instructions. Only the thread that locked it can unlock
 * it, and must do so before it ends.
 */
void *uw_percpu_lock_local(struct uw_percpu *percpu);
void *uw_percpu_trylock_local(struct uw_percpu *percpu);
void *uw_percpu_lock(struct uw_percpu *percpu, int cpu);
void *uw_percpu_trylock(struct uw_percpu *percpu, int cpu);
int uw_percpu_unlock(struct uw_percpu *percpu, void *block);
int uw_percpu_cpu_of(const struct uw_percpu *percpu, const void *block);

/*
 * Calls a function with the locked block of one CPU, or of each CPU. In mode 0 the calls run on
 * those CPUs, at the same time. In modes 1 and 2 the caller makes them, one after the other.
 * EDEADLK: the caller holds a lock; all other blocks were visited.
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
 * Has the function called for the data of the item's CPU. The function itself locks that CPU's
 * block. In mode 0 `queue` runs it on that CPU, once for all calls before it starts (0: it was
 * already pending). In modes 1 and 2 the caller runs it before this returns 1, possibly several
 * threads at once. EINVAL: the item is for another CPU; or, in mode 0, the queue has neither
 * UW_PERCPU nor UW_BH, and would run the function on another CPU. EPERM: the item is disabled.
 *
 * uw_percpu_flush() waits until the function has returned for every earlier call, also of other
 * threads. It returns 0 if there was none, and returns 0 immediately inside the function itself.
 * Other waits for the struct uw_work, for example uw_work_cancel_sync(), see calls in mode 0 only.
 * uw_percpu_is_remote() returns whether a function for that CPU's data, called by this thread now,
 * would run on another CPU; always false in mode 0. It is a hint.
 */
int uw_percpu_queue_on(struct uw_queue *queue, int cpu, struct uw_percpu_work *work);
int uw_percpu_flush(struct uw_percpu_work *work);
bool uw_percpu_is_remote(int cpu);

/*
 * A cache of objects of one size: an allocator with a magazine for each CPU. `align` is a power of
 * 2; 0 aligns like malloc(). An object may be freed on any CPU. _flush_all() empties the magazines
 * of all CPUs and returns how many objects they had. _shrink() does the same, then returns memory
 * to the system, and returns the number of bytes. _destroy() fails with EBUSY while objects are
 * allocated, and then changes nothing.
 */
struct uw_percpu_cache;

struct uw_percpu_cache_stats {
	size_t objects;      /* in all of the cache's memory */
	size_t out;          /* allocated objects; exact if none is allocated or freed meanwhile */
	size_t in_magazines; /* free objects in the magazines of CPUs */
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
 * Pointers that are collected per CPU and passed to `sink`, at most `capacity` (1 to 2^20) at a
 * time. `sink` is called by the thread that adds the last one, by _drain_all(), which reaches every
 * CPU and returns the number of items, and by _destroy(). Several threads may call it at the same
 * time, at most one of them from _drain_all().
 *
 * When _drain_all() returns, the sink has returned for every item whose _add() returned before the
 * call, in any thread. _drain_all() and _destroy() fail with EDEADLK inside the sink of the same
 * batch. A sink may add items. It must not wait for a thread that drains, and the sinks of two
 * batches must not drain each other's batch.
 */
struct uw_percpu_batch;

struct uw_percpu_batch *uw_percpu_batch_create(unsigned capacity,
					       void (*sink)(void *const *items, size_t count, void *arg), void *arg);
int uw_percpu_batch_add(struct uw_percpu_batch *batch, void *item);
int64_t uw_percpu_batch_drain_all(struct uw_percpu_batch *batch);
int uw_percpu_batch_destroy(struct uw_percpu_batch *batch);

/*
 * A counter to which every CPU adds in a part of its own. The sum includes every addition before
 * the call, and reading it disturbs no CPU. The sum of NULL is 0.
 */
struct uw_percpu_counter;

struct uw_percpu_counter *uw_percpu_counter_create(void);
void uw_percpu_counter_add(struct uw_percpu_counter *counter, int64_t number);
int64_t uw_percpu_counter_sum(const struct uw_percpu_counter *counter);
int uw_percpu_counter_destroy(struct uw_percpu_counter *counter);

/* -------------------------------------------------------------------------------------- task work */

/*
 * Task work: items that one particular thread runs itself. A thread registers by uw_task_current().
 * Any thread that has the reference adds items. The target thread runs them in the order of adding,
 * at the points described below, and never in a signal handler.
 */
struct uw_task;
struct uw_task_work;
typedef void (*uw_task_work_fn)(struct uw_task_work *work);

/*
 * Like a work item, it must stay in place from when it is added until its function is called or it
 * is cancelled.
 */
struct uw_task_work {
	uint64_t uw_private[3];
	uw_task_work_fn func;
};

/* How the target thread is notified. The values are those of the kernel's TWA_*. */
enum uw_notify {
	UW_NOTIFY_NONE,   /* not at all: runs with later items */
	UW_NOTIFY_RESUME, /* at its next safe point; does not wake it */
	UW_NOTIFY_SIGNAL  /* immediately: ends its wait; once until it runs its items */
};

/*
 * A reference to the calling thread, and a further reference to a thread. uw_task_put() releases
 * each; NULL is allowed there. A reference does not keep the thread alive.
 */
struct uw_task *uw_task_current(void);
struct uw_task *uw_task_get(const struct uw_task *task);
void uw_task_put(struct uw_task *task);

/*
 * Initialises an idle item and overwrites its previous content. Not allowed while it is in a list.
 */
void uw_task_work_init(struct uw_task_work *work, uw_task_work_fn func);

/*
 * 1 if this call added the item, 0 if it is already in a list. ESRCH: the thread has ended.
 * Allocates nothing.
 */
int uw_task_work_add(const struct uw_task *task, struct uw_task_work *work, unsigned notify);

/*
 * Cancels an item that the thread has not yet taken from its list. Returns 1 on success, 0 if it was
 * not in the list.
 */
int uw_task_work_cancel(const struct uw_task *task, struct uw_task_work *work);

/*
 * The same for the oldest item for which `match` returns true; NULL with ENOENT if there is none.
 * `match` is called under a lock: it must not call functions for the same thread, nor longjmp out.
 */
struct uw_task_work *uw_task_work_cancel_match(const struct uw_task *task,
					       bool (*match)(struct uw_task_work *work, void *arg), void *arg);
int uw_task_work_is_pending(const struct uw_task_work *work);

/*
 * For the calling thread; each returns the number of items run. uw_task_run() runs items until none
 * is left. uw_task_run_once() runs those in the list. uw_task_safe_point() does the same if the
 * thread was notified (UW_NOTIFY_RESUME, UW_NOTIFY_SIGNAL), and otherwise costs a nanosecond or
 * two.
 */
int uw_task_run(void);
int uw_task_run_once(void);
int uw_task_safe_point(void);
bool uw_task_is_notified(void);

/*
 * Sleeps until there are items to run, at most for the time given (below 0: without a limit), and
 * runs them. Returns their number, which may be 0. After uw_task_exit() no item arrives any more:
 * without a limit it sleeps forever.
 */
int uw_task_park(int64_t timeout_ns);

/*
 * Waits of the program's own. uw_task_fd() returns a descriptor for poll, epoll and the like, the
 * same one at each call, or a new one if the program has closed that. It becomes readable when the thread is notified while it is in
 * uw_task_wait(); at other times nothing is written to it. uw_task_wait() calls `wait`, which waits
 * for the descriptor, and returns its result. If there are items to run already, it returns EINTR
 * without calling `wait`. It runs no item.
 */
int uw_task_fd(void);
int uw_task_wait(int (*wait)(void *arg), void *arg);

/*
 * System calls that a notification ends, also one that arrives just before the call. uw_task_read()
 * runs the items and continues reading. uw_task_syscall() returns -EINTR, and then the call has had
 * no effect. It takes six arguments and returns the kernel's result.
 */
ptrdiff_t uw_task_read(int fd, void *buffer, size_t size);
long uw_task_syscall(long number, const long *arguments);

/* How the calling thread is notified. EBUSY: every real-time signal has a handler. */
enum uw_delivery {
	UW_DELIVERY_AUTO,  /* declared waits without a signal, otherwise by a signal */
	UW_DELIVERY_LIGHT, /* never by a signal, except in the two calls above: all waits are declared */
	UW_DELIVERY_SIGNAL /* always by a signal */
};
int uw_task_set_delivery(unsigned delivery);

/*
 * The notification signal, SIGRTMIN to SIGRTMAX, to be chosen before the first thread registers.
 * The default is the highest one without a handler. `restarts` installs the handler with
 * SA_RESTART. EBUSY: it was chosen before.
 */
int uw_task_set_signal(int number, bool restarts);

/*
 * Runs the items in the list, then ends the thread's task work, like the thread's end. Later items
 * are refused.
 */
int uw_task_exit(void);

/* ----------------------------------------------------------------------------------- thread hooks */

enum uw_thread_kind {
	UW_THREAD_WORKER,    /* of a pool that several queues share */
	UW_THREAD_BH,        /* runs the items of BH queues for a CPU */
	UW_THREAD_DEDICATED, /* the only worker of a dedicated queue */
	UW_THREAD_RESCUER,   /* of a queue with UW_MEM_RECLAIM */
	UW_THREAD_HELPER     /* of the program: runs an item while it waits for it */
};

/* A thread that runs items. Valid during the hook's call. */
struct uw_thread {
	const char *name;
	const char *queue; /* the queue for which the thread was started; NULL for helpers and shared workers */
	unsigned kind;
};

struct uw_thread_hooks;

/*
 * Hooks that give each thread which runs items a state: `start` makes and returns it, items of the
 * thread get it from uw_thread_state(), and `stop` gets it back, on that thread. One of the two may be
 * NULL. It does not matter when a thread began: workers that exist already and threads of the program
 * that run an item while they wait (uw_job_join(), uw_work_flush()) call the hooks as well.
 *
 * uw_thread_hooks_add(): `start` runs before the first item that a thread begins after this call; on
 * threads that the library starts for items later, as they start. uw_thread_hooks_add_lazy(): it runs
 * when an item first asks for the state on a thread, and before a thread's first item of a queue with
 * uw_queue_add_thread_hooks().
 *
 * `stop` runs when the thread ends, or outside of items once the hooks are removed. The library's
 * threads that exist when the process exits do not call it; the thread that calls exit() does.
 *
 * A hook may queue items and sleep, and must not wait for items: such a call fails with
 * ENOTRECOVERABLE. While `start` blocks, the items that its thread has taken wait. A forked child has
 * none of its parent's workers, and calls no `stop` for them; the thread that forked keeps its states.
 *
 * NULL with errno EINVAL: both functions are NULL.
 */
struct uw_thread_hooks *uw_thread_hooks_add(void *(*start)(const struct uw_thread *thread, void *arg),
					    void (*stop)(const struct uw_thread *thread, void *state, void *arg),
					    void *arg);
struct uw_thread_hooks *uw_thread_hooks_add_lazy(void *(*start)(const struct uw_thread *thread, void *arg),
						 void (*stop)(const struct uw_thread *thread, void *state, void *arg),
						 void *arg);
/*
 * Items that are queued on this queue from now on run on threads that have called `start`: for a state
 * that items use without asking for it, such as a registration with a library.
 */
int uw_queue_add_thread_hooks(struct uw_queue *queue, struct uw_thread_hooks *hooks);
/*
 * From now on no thread calls `start`, and each thread that has a state calls `stop`: the caller at
 * once, the library's threads when the items that they have taken have run, another thread of the
 * program at its end or when it next runs an item. Until then the functions and `arg` stay valid.
 * uw_thread_hooks_remove() does not wait. uw_thread_hooks_remove_sync() waits for the library's
 * threads, and returns how many threads of the program have not called `stop` yet; after 0 no thread
 * calls the hooks any more. The library's threads are shared: if one of them is in a long item, of
 * whatever queue, the call waits for its end. EDEADLK: in an item; nothing is removed. The handle
 * stays valid for the life of the process.
 */
int uw_thread_hooks_remove(struct uw_thread_hooks *hooks);
int uw_thread_hooks_remove_sync(struct uw_thread_hooks *hooks);
/* Always 0: no thread is too early for hooks. For programs that check it. */
int uw_thread_hooks_missed(const struct uw_thread_hooks *hooks);
/*
 * The calling thread's state, which `start` makes if the thread is in an item and has none; until the
 * item ends. NULL outside of items if the thread has none, and after the removal of the hooks.
 */
void *uw_thread_state(const struct uw_thread_hooks *hooks);

/* ------------------------------------------------------------------------------------- inspection */

/*
 * A snapshot of everything, of one queue, or of the queues that have all of these flags, as text.
 * Free it by uw_string_free(). Stops no thread.
 */
char *uw_dump(void);
char *uw_queue_dump(const struct uw_queue *queue);
char *uw_dump_queues(unsigned flags);
/*
 * Each such signal to the process writes a dump with call stacks to standard error. A second call
 * adds a signal. The signal must have no handler. If it is set to its default later, the handler is
 * installed again, within a second while items run.
 */
int uw_dump_on_signal(int signal);

/*
 * The attribute tree, with the kernel's names: "devices/NAME/affinity_scope", "cpumask",
 * "module/parameters/cpu_intensive_thresh_us". uw_sysfs_get() returns the length, like snprintf().
 * uw_sysfs_list() writes a line for each entry, with a / at the end of a directory's; free it by
 * uw_string_free().
 */
int uw_sysfs_get(const char *path, char *buffer, size_t size);
int uw_sysfs_set(const char *path, const char *value);
int uw_sysfs_list(const char *path, char **list);

/*
 * Sets the function that gets every report, one line each, instead of standard error. Once per
 * process.
 */
int uw_set_reporter(void (*reporter)(const char *text));
/*
 * The same in place of the present reporter, if there is one. The argument stays valid: a thread may
 * be inside a reporter that was replaced.
 */
int uw_replace_reporter(void (*reporter)(void *arg, const char *text), void *arg);

/*
 * The watchdog reports, once per stall, work that waits without progress for the threshold (30 s by
 * default), and the items in its way. 0 turns it off. uw_watchdog_touch() tells it that the calling
 * item takes long on purpose.
 */
uint64_t uw_watchdog_thresh(void);
void uw_watchdog_set_thresh(uint64_t thresh_ns);
void uw_watchdog_touch(void);

/*
 * The counters of every queue and of every function that has run, at the time of the call. Workers
 * count once for each batch. Histograms are given as their sums and percentiles; a percentile is 0
 * without values, and true to a factor of 1.5. New members come at the end of a structure. Free it by
 * uw_counters_free(). docs/operations.md explains each counter.
 */
struct uw_times {
	uint64_t count, sum_ns, p50_ns, p90_ns, p99_ns;
};

struct uw_queue_counters {
	const char *name;
	uint64_t started, ran, run_ns, cpu_ns;
	uint64_t cpu_intensive, replaced, stolen, maydays, rescued;
	uint64_t in_flight, pending, running, max_active, saturated;
	struct uw_times run_times, waits;
};

struct uw_function_counters {
	const char *name;
	uint64_t address;
	struct uw_times run_times, waits;
};

struct uw_counters {
	uint64_t panics, workers;
	size_t nr_queues, nr_functions;
	const struct uw_queue_counters *const *queues;
	const struct uw_function_counters *const *functions;
};

struct uw_counters *uw_counters(void);
void uw_counters_free(struct uw_counters *counters);

/* The same as text in the format of OpenMetrics, for an exporter. Free it by uw_string_free(). */
char *uw_metrics(void);

/* How many runs have ended in a panic of Rust code. */
uint64_t uw_panics(void);

/* ----------------------------------------------------------------------------- freezing, shutdown */

/*
 * Queues with UW_FREEZABLE start no further items. uw_freeze_is_busy() returns 1 while an item
 * still runs.
 */
int uw_freeze_begin(void);
int uw_freeze_is_busy(void);
int uw_thaw(void);

enum uw_shutdown_how {
	UW_DRAIN, /* queued items run */
	UW_CANCEL /* items that have not started are dropped */
};

/*
 * Ends the work of all queues within `timeout_ns`. ETIMEDOUT: some work has not ended; the report
 * lists it. `report` may be NULL; free it by uw_string_free(). Shutdown cannot be undone: later
 * uw_queue_create() fails with ESHUTDOWN.
 */
int uw_shutdown(unsigned how, uint64_t timeout_ns, char **report);

/*
 * For allocators: announces that this memory is being freed. With UWORK_DEBUG=objects the process
 * ends if an item in it is queued; otherwise the call does nothing.
 */
void uw_debug_check_freed(const void *memory, size_t size);

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif

#endif
