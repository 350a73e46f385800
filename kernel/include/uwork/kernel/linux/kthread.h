/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Kernel threads, and workers with one thread each. */
#ifndef UWORK_KERNEL_LINUX_KTHREAD_H
#define UWORK_KERNEL_LINUX_KTHREAD_H

#include <linux/err.h>
#include <linux/sched.h>
#include <linux/workqueue.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The thread sleeps until wake_up_process(). If it cannot be created, the pointer is an ERR_PTR().
 */
struct task_struct *kthread_create_on_node(int (*threadfn)(void *data), void *data, int node, const char *fmt, ...) UW_KERNEL_NAME(kthread_create_on_node) UW_KERNEL_FORMAT(4, 5);
struct task_struct *kthread_create_on_cpu(int (*threadfn)(void *data), void *data, unsigned int cpu,
					  const char *fmt) UW_KERNEL_NAME(kthread_create_on_cpu);
#define kthread_create(threadfn, data, ...) kthread_create_on_node((threadfn), (data), -1, __VA_ARGS__)
#define kthread_run(threadfn, data, ...) uw_kernel_run(kthread_create((threadfn), (data), __VA_ARGS__))
#define kthread_run_on_cpu(threadfn, data, cpu, fmt) \
	uw_kernel_run(kthread_create_on_cpu((threadfn), (data), (cpu), (fmt)))

static inline struct task_struct *uw_kernel_run(struct task_struct *task)
{
	if (!IS_ERR(task))
		wake_up_process(task);
	return task;
}

void kthread_bind(struct task_struct *task, unsigned int cpu) UW_KERNEL_NAME(kthread_bind);
void kthread_bind_mask(struct task_struct *task, const struct cpumask *mask) UW_KERNEL_NAME(kthread_bind_mask);
#define kthread_affine_preferred(task, mask) (kthread_bind_mask((task), (mask)), 0)

/*
 * Wakes the thread, waits until it ends, and returns its function's result; -EINTR if the function
 * was never called.
 */
int kthread_stop(struct task_struct *task) UW_KERNEL_NAME(kthread_stop);
int kthread_stop_put(struct task_struct *task) UW_KERNEL_NAME(kthread_stop_put);
bool kthread_should_stop(void) UW_KERNEL_NAME(kthread_should_stop);
bool kthread_should_park(void) UW_KERNEL_NAME(kthread_should_park);
int kthread_park(struct task_struct *task) UW_KERNEL_NAME(kthread_park);
void kthread_unpark(struct task_struct *task) UW_KERNEL_NAME(kthread_unpark);
void kthread_parkme(void) UW_KERNEL_NAME(kthread_parkme);
void *kthread_data(struct task_struct *task) UW_KERNEL_NAME(kthread_data);
void kthread_exit(long result) UW_KERNEL_NAME(kthread_exit) __attribute__((noreturn));
struct completion;
void kthread_complete_and_exit(struct completion *done, long result) UW_KERNEL_NAME(kthread_complete_and_exit) __attribute__((noreturn));
void *kthread_func(struct task_struct *task) UW_KERNEL_NAME(kthread_func);
/* Like kthread_should_stop(): a program's threads are never frozen. */
#define kthread_freezable_should_stop(was_frozen) \
	__extension__({ \
		bool *uw_was = (was_frozen); \
		if (uw_was) \
			*uw_was = false; \
		kthread_should_stop(); \
	})
#define kthread_should_stop_or_park() (kthread_should_stop() || kthread_should_park())

/* ---------------------------------------------------------------------------------------- workers */

struct kthread_work;
typedef void (*kthread_work_func_t)(struct kthread_work *work);

/* The same layout as struct uw_work. */
struct kthread_work {
	uint64_t uw_private[3];
	kthread_work_func_t func;
	uint64_t uw_place;
};

/* The same layout as struct uw_delayed_work. */
struct kthread_delayed_work {
	struct kthread_work work;
	uint64_t uw_private[11];
};

/* A queue with a thread of its own. */
struct kthread_worker {
	struct uw_queue *uw_queue;
	/*
	 * The worker's thread. After kthread_init_worker() it is set once kthread_worker_fn() runs.
	 */
	struct task_struct *task;
	unsigned int flags;
};

#define KTW_FREEZABLE 1u

#define KTHREAD_WORKER_INIT(worker) { NULL, NULL, 0 }
#define DEFINE_KTHREAD_WORKER(worker) struct kthread_worker worker = KTHREAD_WORKER_INIT(worker)
#define DEFINE_KTHREAD_WORKER_ONSTACK(worker) DEFINE_KTHREAD_WORKER(worker)

/* The worker's queue. A statically defined worker gets it at the first use. */
struct uw_queue *uw_kernel_worker_queue(struct kthread_worker *worker);

/*
 * For a worker in the caller's memory, whose thread is kthread_run(kthread_worker_fn, worker, ...).
 */
void uw_kernel_init_worker(struct kthread_worker *worker);
#define kthread_init_worker(worker) uw_kernel_init_worker(worker)
int kthread_worker_fn(void *worker) UW_KERNEL_NAME(kthread_worker_fn);

struct kthread_worker *kthread_create_worker_on_node(unsigned int flags, int node, const char *fmt, ...) UW_KERNEL_NAME(kthread_create_worker_on_node) UW_KERNEL_FORMAT(3, 4);
struct kthread_worker *kthread_create_worker_on_cpu(int cpu, unsigned int flags, const char *fmt, ...) UW_KERNEL_NAME(kthread_create_worker_on_cpu);
/*
 * The format may contain one more %u than there are arguments, for the CPU. So compilers cannot
 * check it.
 */
#define kthread_create_worker_on_cpu(cpu, flags, ...) (kthread_create_worker_on_cpu)((cpu), (flags), __VA_ARGS__, (cpu))
#define kthread_create_worker(flags, ...) kthread_create_worker_on_node((flags), -1, __VA_ARGS__)
#define kthread_run_worker(flags, ...) kthread_create_worker_on_node((flags), -1, __VA_ARGS__)
#define kthread_run_worker_on_node(flags, node, ...) kthread_create_worker_on_node((flags), (node), __VA_ARGS__)
#define kthread_run_worker_on_cpu(cpu, flags, ...) kthread_create_worker_on_cpu((cpu), (flags), __VA_ARGS__)
void kthread_destroy_worker(struct kthread_worker *worker) UW_KERNEL_NAME(kthread_destroy_worker);

static inline void kthread_init_work(struct kthread_work *work, kthread_work_func_t func)
{
	uw_work_init((struct uw_work *)work, (uw_work_fn)func);
}

static inline void uw_kernel_init_kthread_delayed_work(struct kthread_delayed_work *dwork, kthread_work_func_t func)
{
	uw_delayed_work_init((struct uw_delayed_work *)dwork, (uw_work_fn)func, 0, 0);
}

#define kthread_init_delayed_work(dwork, func) uw_kernel_init_kthread_delayed_work((dwork), (func))
#define KTHREAD_WORK_INIT(work, fn) UW_WORK_INIT(fn)
#define DEFINE_KTHREAD_WORK(work, fn) struct kthread_work work = KTHREAD_WORK_INIT(work, fn)
#define KTHREAD_DELAYED_WORK_INIT(dwork, fn) UW_DELAYED_WORK_INIT(fn)
#define DEFINE_KTHREAD_DELAYED_WORK(dwork, fn) \
	struct kthread_delayed_work dwork = KTHREAD_DELAYED_WORK_INIT(dwork, fn)

static inline bool kthread_queue_work(struct kthread_worker *worker, struct kthread_work *work)
{
	return uw_kernel_queued(uw_queue_work(uw_kernel_worker_queue(worker), (struct uw_work *)work));
}

static inline bool kthread_queue_delayed_work(struct kthread_worker *worker, struct kthread_delayed_work *dwork,
					      unsigned long delay)
{
	return uw_kernel_queued(uw_queue_delayed_work(uw_kernel_worker_queue(worker), (struct uw_delayed_work *)dwork,
						      uw_kernel_ticks_to_ns(delay)));
}

static inline bool kthread_mod_delayed_work(struct kthread_worker *worker, struct kthread_delayed_work *dwork,
					    unsigned long delay)
{
	int answer = uw_mod_delayed_work(uw_kernel_worker_queue(worker), (struct uw_delayed_work *)dwork,
					 uw_kernel_ticks_to_ns(delay));

	uw_kernel_queued(answer);
	return answer == 0;
}

static inline void kthread_flush_work(struct kthread_work *work)
{
	uw_kernel_queued(uw_work_flush((struct uw_work *)work));
}

static inline void kthread_flush_worker(struct kthread_worker *worker)
{
	/* A statically defined worker that was never used has no queue yet. */
	if (worker->uw_queue)
		uw_kernel_queued(uw_queue_flush(worker->uw_queue));
}

static inline bool kthread_cancel_work_sync(struct kthread_work *work)
{
	return uw_kernel_queued(uw_work_cancel_sync((struct uw_work *)work));
}

static inline bool kthread_cancel_delayed_work_sync(struct kthread_delayed_work *dwork)
{
	return kthread_cancel_work_sync(&dwork->work);
}

#ifdef __cplusplus
}
#endif

#include "../uw_kernel_environment.h"

#endif
