/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Workqueues. Independent of the other headers, except for uwork.h, timer.h and uw_kernel_time.h.
 * It includes nothing else that the kernel's workqueue.h includes, so a program may have its own
 * list_head, atomic_t and the like.
 */
#ifndef UWORK_KERNEL_LINUX_WORKQUEUE_H
#define UWORK_KERNEL_LINUX_WORKQUEUE_H

#include "timer.h"

/* In code that uses these headers' types. */
#if defined(UWORK_KERNEL_ENVIRONMENT) && !defined(UW_KERNEL_IS_COPY)
#define UW_KERNEL_WORK_DATA
#include <linux/types.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct cpumask;
struct task_struct;
struct work_struct;
struct workqueue_struct;

typedef void (*work_func_t)(struct work_struct *work);

/*
 * The same layout as struct uw_work. As in the kernel, `data` begins the item, and its bit
 * WORK_STRUCT_PENDING_BIT says that it is pending; other bits are the library's. Writing 0 to the
 * `data` of an idle item leaves it idle. With UWORK_DEBUG=objects it is a pattern instead, which does
 * not say whether the item is pending (work_pending() does), and a write to it is found as damage. In
 * a program with an atomic_long_t of its own, and one that includes this header before all others,
 * `data` has no type to be offered with.
 */
struct work_struct {
	__extension__ union {
		uint64_t uw_private[3];
		__extension__ struct {
#ifdef UW_KERNEL_WORK_DATA
			atomic_long_t data;
#else
			uint64_t data UW_KERNEL_INSTEAD(
				"use work_pending(work), or include linux/types.h first, which has atomic_long_t");
#endif
			uint64_t entry[2] UW_KERNEL_INSTEAD(
				"use work_pending(work) instead of list_empty(&work->entry), and INIT_WORK() instead of "
				"INIT_LIST_HEAD(&work->entry): the library links items in another way");
		};
	};
	work_func_t func;
	uint64_t uw_place;
};

/*
 * Begins like struct uw_delayed_work, which the timer contains. Of the timer, the program can read
 * the most recently requested deadline, and whether it is pending, which is whether the item is
 * pending. wq and cpu are those most recently requested.
 */
struct delayed_work {
	union {
		struct timer_list timer;
		struct work_struct work;
	};
	struct workqueue_struct *wq;
	int cpu;
};

/* Begins like struct uw_rcu_work. */
struct rcu_work {
	struct work_struct work;
	uint64_t uw_private[2];
	struct workqueue_struct *wq;
};

struct execute_work {
	struct work_struct work;
};

enum wq_flags {
	WQ_BH = 1 << 0,
	WQ_UNBOUND = 1 << 1,
	WQ_FREEZABLE = 1 << 2,
	WQ_MEM_RECLAIM = 1 << 3,
	WQ_HIGHPRI = 1 << 4,
	WQ_CPU_INTENSIVE = 1 << 5,
	WQ_SYSFS = 1 << 6,
	WQ_POWER_EFFICIENT = 1 << 7,
	WQ_PERCPU = 1 << 8,
	__WQ_DESTROYING = 1 << 15,
	__WQ_DRAINING = 1 << 16,
	__WQ_ORDERED = 1 << 17,
	__WQ_LEGACY = 1 << 18,
	__WQ_DEPRECATED = 1 << 20
};

enum wq_consts {
	WQ_MAX_ACTIVE = 2048,
	WQ_UNBOUND_MAX_ACTIVE = WQ_MAX_ACTIVE,
	WQ_DFL_ACTIVE = WQ_MAX_ACTIVE / 2,
	WQ_DFL_MIN_ACTIVE = 8
};

/* The caller's CPU. */
#define WORK_CPU_UNBOUND 0x7fffffff

enum {
	WORK_BUSY_PENDING = 1 << 0,
	WORK_BUSY_RUNNING = 1 << 1
};

#define WORKER_DESC_LEN 32
#define WQ_NAME_LEN 32

/* From finest to coarsest; the same numbers as enum uw_scope. */
enum wq_affn_scope {
	WQ_AFFN_DFL,
	WQ_AFFN_CPU,
	WQ_AFFN_SMT,
	WQ_AFFN_CLUSTER,
	WQ_AFFN_CACHE_SHARD,
	WQ_AFFN_CACHE,
	WQ_AFFN_NUMA,
	WQ_AFFN_SYSTEM,
	WQ_AFFN_NR_TYPES
};

struct workqueue_attrs {
	int nice;
	/* One bit for each CPU, with room for UW_KERNEL_MASK_BYTES. Empty selects all CPUs. */
	struct cpumask *cpumask;
	bool affn_strict;
	enum wq_affn_scope affn_scope;
	bool ordered;
};

#define UW_KERNEL_MASK_BYTES 128

/* ------------------------------------------------------------------------------------------- items */

#define __WORK_INITIALIZER(name, function) { { { 0, 0, 0 } }, (function), UW_NOWHERE }
#define __DELAYED_WORK_INITIALIZER(name, function, flags) \
	{ { { { UW_WORK_INIT((uw_work_fn)(function)), \
		{ 0, 0, 0, 0, 0, 0, 0, 0, (flags) & TIMER_DEFERRABLE ? UW_MARK_DEFERRABLE : 0, 0, 0 } }, \
	      NULL, 0, (flags) } }, NULL, WORK_CPU_UNBOUND }

#define DECLARE_WORK(name, function) struct work_struct name = __WORK_INITIALIZER(name, function)
#define DECLARE_DELAYED_WORK(name, function) \
	struct delayed_work name = __DELAYED_WORK_INITIALIZER(name, function, 0)
#define DECLARE_DEFERRABLE_WORK(name, function) \
	struct delayed_work name = __DELAYED_WORK_INITIALIZER(name, function, TIMER_DEFERRABLE)

static inline struct uw_work *uw_kernel_work(struct work_struct *work)
{
	return (struct uw_work *)work;
}

static inline struct uw_delayed_work *uw_kernel_delayed_work(struct delayed_work *dwork)
{
	return (struct uw_delayed_work *)dwork;
}

static inline struct uw_queue *uw_kernel_queue(struct workqueue_struct *wq)
{
	return (struct uw_queue *)wq;
}

static inline void uw_kernel_init_work(struct work_struct *work, work_func_t function)
{
	uw_work_init(uw_kernel_work(work), (uw_work_fn)function);
}

static inline void uw_kernel_init_delayed_work(struct delayed_work *dwork, work_func_t function, unsigned int flags)
{
	uw_delayed_work_init(uw_kernel_delayed_work(dwork), (uw_work_fn)function, flags, 0);
	dwork->timer.function = NULL;
	dwork->timer.expires = 0;
	dwork->timer.flags = 0;
	dwork->wq = NULL;
	dwork->cpu = WORK_CPU_UNBOUND;
}

static inline void uw_kernel_init_rcu_work(struct rcu_work *rwork, work_func_t function)
{
	uw_rcu_work_init((struct uw_rcu_work *)rwork, (uw_work_fn)function);
	rwork->wq = NULL;
}

#define WORK_STRUCT_PENDING_BIT 0
#define WORK_STRUCT_PENDING (1ul << WORK_STRUCT_PENDING_BIT)
/* The word with that bit. */
#define work_data_bits(work) ((unsigned long *)(void *)(work))

/* The key is for lockdep. */
#define INIT_WORK_KEY(work, function, key) ((void)(key), uw_kernel_init_work((work), (function)))
#define INIT_WORK_ONSTACK_KEY(work, function, key) INIT_WORK_KEY(work, function, key)
#define __INIT_WORK(work, function, onstack) ((void)(onstack), uw_kernel_init_work((work), (function)))
#define __INIT_WORK_KEY(work, function, onstack, key) ((void)(onstack), INIT_WORK_KEY(work, function, key))
#define __INIT_DELAYED_WORK(dwork, function, flags) \
	uw_kernel_init_delayed_work((dwork), (function), (flags) & TIMER_DEFERRABLE ? UW_DEFERRABLE : 0)
#define INIT_WORK(work, function) uw_kernel_init_work((work), (function))
#define INIT_WORK_ONSTACK(work, function) uw_kernel_init_work((work), (function))
#define INIT_DELAYED_WORK(dwork, function) uw_kernel_init_delayed_work((dwork), (function), 0)
#define INIT_DELAYED_WORK_ONSTACK(dwork, function) uw_kernel_init_delayed_work((dwork), (function), 0)
#define INIT_DEFERRABLE_WORK(dwork, function) uw_kernel_init_delayed_work((dwork), (function), UW_DEFERRABLE)
#define INIT_DEFERRABLE_WORK_ONSTACK(dwork, function) INIT_DEFERRABLE_WORK(dwork, function)
#define INIT_RCU_WORK(rwork, function) uw_kernel_init_rcu_work((rwork), (function))
#define INIT_RCU_WORK_ONSTACK(rwork, function) uw_kernel_init_rcu_work((rwork), (function))

/* With UWORK_DEBUG=objects the process ends if the item is queued. */
static inline void destroy_work_on_stack(struct work_struct *work)
{
	uw_debug_check_freed(work, sizeof(*work));
}

static inline void destroy_delayed_work_on_stack(struct delayed_work *dwork)
{
	uw_debug_check_freed(dwork, sizeof(*dwork));
}

static inline struct delayed_work *to_delayed_work(struct work_struct *work)
{
	return UW_CONTAINER_OF(work, struct delayed_work, work);
}

static inline struct rcu_work *to_rcu_work(struct work_struct *work)
{
	return UW_CONTAINER_OF(work, struct rcu_work, work);
}

#define from_work(var, callback_work, work_fieldname) \
	UW_CONTAINER_OF(callback_work, __typeof__(*(var)), work_fieldname)

/* ------------------------------------------------------------------------------------------ queues */

/*
 * NULL on failure. A name that is in use gets a number appended; a name that is too long is cut.
 * max_active is the number of items that run at once: on each CPU for a per-CPU queue; on the whole
 * machine for an unbound one, of which each NUMA node has a share in proportion to its CPUs, of at
 * least min_active. 0 selects WQ_DFL_ACTIVE.
 */
struct workqueue_struct *alloc_workqueue(const char *fmt, unsigned int flags, int max_active, ...) UW_KERNEL_NAME(alloc_workqueue) UW_KERNEL_FORMAT(1, 4);
struct workqueue_struct *alloc_ordered_workqueue(const char *fmt, unsigned int flags, ...) UW_KERNEL_NAME(alloc_ordered_workqueue) UW_KERNEL_FORMAT(1, 3);
void destroy_workqueue(struct workqueue_struct *wq) UW_KERNEL_NAME(destroy_workqueue);

#define create_workqueue(name) alloc_workqueue("%s", __WQ_LEGACY | WQ_MEM_RECLAIM | WQ_PERCPU, 1, (name))
#define create_freezable_workqueue(name) \
	alloc_workqueue("%s", __WQ_LEGACY | WQ_FREEZABLE | WQ_UNBOUND | WQ_MEM_RECLAIM, 1, (name))
#define create_singlethread_workqueue(name) alloc_ordered_workqueue("%s", __WQ_LEGACY | WQ_MEM_RECLAIM, (name))

/* All CPUs, and the niceness of the process, which `nice -n 10 program` raises, instead of 0. */
struct workqueue_attrs *alloc_workqueue_attrs(void) UW_KERNEL_NAME(alloc_workqueue_attrs);
void free_workqueue_attrs(struct workqueue_attrs *attrs) UW_KERNEL_NAME(free_workqueue_attrs);
/*
 * For unbound queues. Applies one attribute after the other. Returns the negative errno value of
 * the first that fails.
 */
int apply_workqueue_attrs(struct workqueue_struct *wq, const struct workqueue_attrs *attrs) UW_KERNEL_NAME(apply_workqueue_attrs);
/* Of an unbound queue, each NUMA node gets its share of the new limit, and no less than min_active. */
void workqueue_set_max_active(struct workqueue_struct *wq, int max_active) UW_KERNEL_NAME(workqueue_set_max_active);
void workqueue_set_min_active(struct workqueue_struct *wq, int min_active) UW_KERNEL_NAME(workqueue_set_min_active);
/* Only for queues that were created with WQ_SYSFS. */
int workqueue_sysfs_register(struct workqueue_struct *wq) UW_KERNEL_NAME(workqueue_sysfs_register);
/* -EOPNOTSUPP: the library reads the isolated CPUs from the system. */
int workqueue_unbound_housekeeping_update(const struct cpumask *hk) UW_KERNEL_NAME(workqueue_unbound_housekeeping_update);

/* ----------------------------------------------------------------------------------- system queues */

/*
 * Tokens of the library's system queues, numbered by enum uw_system_queue. The first use creates
 * the queue.
 */
#define UW_KERNEL_SYSTEM_QUEUE(name, number) \
	extern const uint64_t uw_kernel_token_##name __attribute__((weak)); \
	const uint64_t uw_kernel_token_##name = 0x75776f726b535900ull | (number); \
	extern struct workqueue_struct *name __attribute__((weak)); \
	struct workqueue_struct *name = (struct workqueue_struct *)(uintptr_t)&uw_kernel_token_##name

UW_KERNEL_SYSTEM_QUEUE(system_percpu_wq, UW_SYSTEM_PERCPU);
UW_KERNEL_SYSTEM_QUEUE(system_highpri_wq, UW_SYSTEM_HIGHPRI);
UW_KERNEL_SYSTEM_QUEUE(system_long_wq, UW_SYSTEM_LONG);
UW_KERNEL_SYSTEM_QUEUE(system_dfl_wq, UW_SYSTEM_DFL);
UW_KERNEL_SYSTEM_QUEUE(system_dfl_long_wq, UW_SYSTEM_DFL_LONG);
UW_KERNEL_SYSTEM_QUEUE(system_freezable_wq, UW_SYSTEM_FREEZABLE);
UW_KERNEL_SYSTEM_QUEUE(system_power_efficient_wq, UW_SYSTEM_POWER_EFFICIENT);
UW_KERNEL_SYSTEM_QUEUE(system_freezable_power_efficient_wq, UW_SYSTEM_FREEZABLE_POWER_EFFICIENT);
UW_KERNEL_SYSTEM_QUEUE(system_bh_wq, UW_SYSTEM_BH);
UW_KERNEL_SYSTEM_QUEUE(system_bh_highpri_wq, UW_SYSTEM_BH_HIGHPRI);
/* Older names. */
UW_KERNEL_SYSTEM_QUEUE(system_wq, UW_SYSTEM_PERCPU);
UW_KERNEL_SYSTEM_QUEUE(system_unbound_wq, UW_SYSTEM_DFL);

/* ---------------------------------------------------------------------------------------- queueing */

/* Inlined into its caller, so that a report names the caller's location. */
static inline __attribute__((always_inline)) bool uw_kernel_queued(int answer)
{
	if (answer < 0)
		uw_kernel_complain(answer);
	return answer > 0;
}

static inline bool queue_work_on(int cpu, struct workqueue_struct *wq, struct work_struct *work)
{
	if (cpu == WORK_CPU_UNBOUND)
		return uw_kernel_queued(uw_queue_work(uw_kernel_queue(wq), uw_kernel_work(work)));
	return uw_kernel_queued(uw_queue_work_on(uw_kernel_queue(wq), cpu, uw_kernel_work(work)));
}

static inline bool queue_work(struct workqueue_struct *wq, struct work_struct *work)
{
	return uw_kernel_queued(uw_queue_work(uw_kernel_queue(wq), uw_kernel_work(work)));
}

static inline bool queue_work_node(int node, struct workqueue_struct *wq, struct work_struct *work)
{
	return uw_kernel_queued(uw_queue_work_node(uw_kernel_queue(wq), node, uw_kernel_work(work)));
}

/*
 * Records the requested delay for readers. The stores are atomic because several threads may
 * request one at the same time. They precede the queueing because the item may be freed afterwards.
 */
static inline void uw_kernel_note_delay(struct delayed_work *dwork, struct workqueue_struct *wq, int cpu,
					unsigned long delay)
{
	__atomic_store_n(&dwork->timer.expires, UW_KERNEL_JIFFIES + delay, __ATOMIC_RELAXED);
	__atomic_store_n(&dwork->wq, wq, __ATOMIC_RELAXED);
	__atomic_store_n(&dwork->cpu, cpu, __ATOMIC_RELAXED);
}

static inline bool queue_delayed_work_on(int cpu, struct workqueue_struct *wq, struct delayed_work *dwork,
					 unsigned long delay)
{
	struct uw_delayed_work *item = uw_kernel_delayed_work(dwork);
	uint64_t delay_ns = uw_kernel_ticks_to_ns(delay);

	if (uw_work_is_pending(&item->work) == 0)
		uw_kernel_note_delay(dwork, wq, cpu, delay);
	if (cpu == WORK_CPU_UNBOUND)
		return uw_kernel_queued(uw_queue_delayed_work(uw_kernel_queue(wq), item, delay_ns));
	return uw_kernel_queued(uw_queue_delayed_work_on(uw_kernel_queue(wq), cpu, item, delay_ns));
}

static inline bool queue_delayed_work(struct workqueue_struct *wq, struct delayed_work *dwork, unsigned long delay)
{
	return queue_delayed_work_on(WORK_CPU_UNBOUND, wq, dwork, delay);
}

/* Returns true if the item was pending and has the new deadline, and false if it was idle. */
static inline bool mod_delayed_work_on(int cpu, struct workqueue_struct *wq, struct delayed_work *dwork,
				       unsigned long delay)
{
	struct uw_delayed_work *item = uw_kernel_delayed_work(dwork);
	uint64_t delay_ns = uw_kernel_ticks_to_ns(delay);
	int answer;

	uw_kernel_note_delay(dwork, wq, cpu, delay);
	if (cpu == WORK_CPU_UNBOUND)
		answer = uw_mod_delayed_work(uw_kernel_queue(wq), item, delay_ns);
	else
		answer = uw_mod_delayed_work_on(uw_kernel_queue(wq), cpu, item, delay_ns);
	uw_kernel_queued(answer);
	return answer == 0;
}

static inline bool mod_delayed_work(struct workqueue_struct *wq, struct delayed_work *dwork, unsigned long delay)
{
	return mod_delayed_work_on(WORK_CPU_UNBOUND, wq, dwork, delay);
}

static inline bool queue_rcu_work(struct workqueue_struct *wq, struct rcu_work *rwork)
{
	return uw_kernel_queued(uw_queue_rcu_work(uw_kernel_queue(wq), (struct uw_rcu_work *)rwork));
}

static inline bool schedule_work(struct work_struct *work)
{
	return queue_work(system_percpu_wq, work);
}

static inline bool schedule_work_on(int cpu, struct work_struct *work)
{
	return queue_work_on(cpu, system_percpu_wq, work);
}

static inline bool schedule_delayed_work(struct delayed_work *dwork, unsigned long delay)
{
	return queue_delayed_work(system_percpu_wq, dwork, delay);
}

static inline bool schedule_delayed_work_on(int cpu, struct delayed_work *dwork, unsigned long delay)
{
	return queue_delayed_work_on(cpu, system_percpu_wq, dwork, delay);
}

static inline bool enable_and_queue_work(struct workqueue_struct *wq, struct work_struct *work)
{
	return uw_kernel_queued(uw_enable_and_queue_work(uw_kernel_queue(wq), uw_kernel_work(work)));
}

/* Queues one item on each CPU that the process may use, and waits for all. */
/* -EDEADLK in a thread hook and in an item of a BH queue. */
int schedule_on_each_cpu(work_func_t function) UW_KERNEL_NAME(schedule_on_each_cpu);
/*
 * Calls the function and returns 0. In a timer or a BH item it queues the function instead and
 * returns 1.
 */
int execute_in_process_context(work_func_t function, struct execute_work *ew) UW_KERNEL_NAME(execute_in_process_context);
/* Returns the function's result, or a negative errno value. */
long work_on_cpu(int cpu, long (*function)(void *arg), void *arg) UW_KERNEL_NAME(work_on_cpu);
#define work_on_cpu_safe(cpu, function, arg) work_on_cpu((cpu), (function), (arg))

/* ---------------------------------------------------------------------------- waiting, cancelling */

static inline bool flush_work(struct work_struct *work)
{
	return uw_kernel_queued(uw_work_flush(uw_kernel_work(work)));
}

static inline bool flush_delayed_work(struct delayed_work *dwork)
{
	return uw_kernel_queued(uw_delayed_work_flush(uw_kernel_delayed_work(dwork)));
}

static inline bool flush_rcu_work(struct rcu_work *rwork)
{
	return uw_kernel_queued(uw_rcu_work_flush((struct uw_rcu_work *)rwork));
}

static inline void flush_workqueue(struct workqueue_struct *wq)
{
	uw_kernel_queued(uw_queue_flush(uw_kernel_queue(wq)));
}

static inline void __flush_workqueue(struct workqueue_struct *wq)
{
	flush_workqueue(wq);
}

static inline void drain_workqueue(struct workqueue_struct *wq)
{
	uw_kernel_queued(uw_queue_drain(uw_kernel_queue(wq)));
}

/* Warns that it should not be called, because other code uses that queue too. */
void flush_scheduled_work(void) UW_KERNEL_NAME(flush_scheduled_work);

static inline bool cancel_work(struct work_struct *work)
{
	return uw_kernel_queued(uw_work_cancel(uw_kernel_work(work)));
}

static inline bool cancel_work_sync(struct work_struct *work)
{
	return uw_kernel_queued(uw_work_cancel_sync(uw_kernel_work(work)));
}

static inline bool cancel_delayed_work(struct delayed_work *dwork)
{
	return cancel_work(&dwork->work);
}

static inline bool cancel_delayed_work_sync(struct delayed_work *dwork)
{
	return cancel_work_sync(&dwork->work);
}

static inline bool disable_work(struct work_struct *work)
{
	return uw_kernel_queued(uw_work_disable(uw_kernel_work(work)));
}

static inline bool disable_work_sync(struct work_struct *work)
{
	return uw_kernel_queued(uw_work_disable_sync(uw_kernel_work(work)));
}

static inline bool enable_work(struct work_struct *work)
{
	return uw_kernel_queued(uw_work_enable(uw_kernel_work(work)));
}

static inline bool disable_delayed_work(struct delayed_work *dwork)
{
	return disable_work(&dwork->work);
}

static inline bool disable_delayed_work_sync(struct delayed_work *dwork)
{
	return disable_work_sync(&dwork->work);
}

static inline bool enable_delayed_work(struct delayed_work *dwork)
{
	return enable_work(&dwork->work);
}

/* -------------------------------------------------------------------------------------- inspection */

static inline bool work_pending(struct work_struct *work)
{
	return uw_kernel_queued(uw_work_is_pending(uw_kernel_work(work)));
}

static inline bool delayed_work_pending(struct delayed_work *dwork)
{
	return work_pending(&dwork->work);
}

/* WORK_BUSY_* */
static inline unsigned int work_busy(struct work_struct *work)
{
	int busy = uw_work_busy(uw_kernel_work(work));

	uw_kernel_queued(busy);
	return busy > 0 ? (unsigned int)busy : 0;
}

static inline bool workqueue_congested(int cpu, struct workqueue_struct *wq)
{
	if (cpu == WORK_CPU_UNBOUND)
		return uw_kernel_queued(uw_queue_is_congested(uw_kernel_queue(wq)));
	return uw_kernel_queued(uw_queue_is_congested_on(uw_kernel_queue(wq), cpu));
}

static inline struct work_struct *current_work(void)
{
	return (struct work_struct *)uw_current_work();
}

static inline bool current_is_workqueue_rescuer(void)
{
	return uw_current_is_rescuer();
}

void set_worker_desc(const char *fmt, ...) UW_KERNEL_NAME(set_worker_desc) UW_KERNEL_FORMAT(1, 2);
/* Prints, at this level, the item that the task's worker runs. */
void print_worker_info(const char *log_lvl, struct task_struct *task) UW_KERNEL_NAME(print_worker_info);
void show_all_workqueues(void) UW_KERNEL_NAME(show_all_workqueues);
void show_one_workqueue(struct workqueue_struct *wq) UW_KERNEL_NAME(show_one_workqueue);
void show_freezable_workqueues(void) UW_KERNEL_NAME(show_freezable_workqueues);
/* Tells the watchdog that the calling item takes long on purpose. Does nothing outside of items. */
void wq_watchdog_touch(int cpu) UW_KERNEL_NAME(wq_watchdog_touch);

/* ---------------------------------------------------------------------------------- freezing, CPUs */

void freeze_workqueues_begin(void) UW_KERNEL_NAME(freeze_workqueues_begin);
bool freeze_workqueues_busy(void) UW_KERNEL_NAME(freeze_workqueues_busy);
void thaw_workqueues(void) UW_KERNEL_NAME(thaw_workqueues);

/* The library detects changes of the CPUs by itself. Returns 0. */
int workqueue_prepare_cpu(unsigned int cpu) UW_KERNEL_NAME(workqueue_prepare_cpu);
int workqueue_online_cpu(unsigned int cpu) UW_KERNEL_NAME(workqueue_online_cpu);
int workqueue_offline_cpu(unsigned int cpu) UW_KERNEL_NAME(workqueue_offline_cpu);

#ifdef __cplusplus
}
#endif

/*
 * In code that uses these headers' types, includes the headers that the kernel's workqueue.h
 * includes.
 */
#if defined(UWORK_KERNEL_ENVIRONMENT) && !defined(UW_KERNEL_IS_COPY)
#include "../uw_kernel_environment.h"
#endif

#endif
