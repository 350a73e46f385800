/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The functions of linux/workqueue.h that are more than an alias. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/cpumask.h>
#include <linux/kernel.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include "may_wait.h"
#include "names.h"
#include "task.h"

_Static_assert(sizeof(struct work_struct) == sizeof(struct uw_work), "an item is an item");
_Static_assert(sizeof(struct delayed_work) >= sizeof(struct uw_delayed_work), "a delayed item is one");
_Static_assert(sizeof(struct rcu_work) >= sizeof(struct uw_rcu_work), "an rcu item is one");
_Static_assert(UW_KERNEL_MASK_BYTES == sizeof(struct cpumask), "a mask has room for all CPUs");

/* Flags of the kernel that are unknown to the library. */
#define NOT_PASSED (__WQ_DESTROYING | __WQ_DRAINING | __WQ_LEGACY | __WQ_DEPRECATED)

/*
 * Whether this is the first report of its kind, according to a table. A full table suppresses all
 * further ones.
 */
static bool is_first_report(uintptr_t what)
{
	static uintptr_t said[256];
	size_t probe;

	for (probe = 0; probe < ARRAY_SIZE(said); probe++) {
		uintptr_t *place = &said[(what + probe) % ARRAY_SIZE(said)];
		uintptr_t found = 0;

		if (__atomic_compare_exchange_n(place, &found, what, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
		if (found == what)
			return false;
	}
	return false;
}

void uw_kernel_complain(int code)
{
	void *caller = __builtin_return_address(0);

	/* A disabled item is not an error in the kernel. */
	if (code == -EPERM)
		return;
	/* A refused wait for items. The program goes on to free or unload what it has waited for. */
	if (code == -ENOTRECOVERABLE && !uw_kernel_may_wait()) {
		uw_kernel_printk(KERN_EMERG "BUG: %pS: %s\n", caller, uw_error_text());
		abort();
	}
	/*
	 * One report for each caller and errno. An errno is below 4096, so the products do not
	 * collide.
	 */
	if (is_first_report((uintptr_t)caller * 4096 + (unsigned int)-code))
		uw_kernel_printk(KERN_WARNING "uwork: %pS: a call failed: %s\n", caller, uw_error_text());
}

struct uw_queue *uw_kernel_create_named(const char *name, const struct uw_queue_attrs *attrs)
{
	struct uw_queue_attrs numbered = *attrs;

	numbered.flags |= UW_NUMBERED;
	return uw_queue_create_attrs(name, &numbered);
}

static struct workqueue_struct *create(const char *fmt, unsigned int flags, int max_active, va_list args)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	char name[WQ_NAME_LEN];
	struct uw_queue *queue;

	if (uw_kernel_vsnprintf(name, sizeof(name), fmt, args) >= (int)sizeof(name))
		uw_kernel_printk(KERN_WARNING "uwork: the name of a workqueue is too long; it is cut to %s\n", name);
	attrs.flags = (flags & ~(unsigned int)NOT_PASSED) | UW_KERNEL_RULES;
	if (flags & __WQ_ORDERED) {
		attrs.max_active = 1;
	} else if (!(flags & WQ_BH)) {
		int most = max_active > WQ_MAX_ACTIVE ? WQ_MAX_ACTIVE : max_active;

		if (max_active < 0 || most != max_active)
			uw_kernel_printk(KERN_WARNING "uwork: max_active of %s: allowed are 1 to %d, not %d\n", name,
					 WQ_MAX_ACTIVE, max_active);
		attrs.max_active = most < 0 ? 1 : (unsigned int)most;
	}
	queue = uw_kernel_create_named(name, &attrs);
	if (!queue)
		uw_kernel_printk(KERN_ERR "uwork: workqueue %s could not be created: %s\n", name, uw_error_text());
	return (struct workqueue_struct *)queue;
}

struct workqueue_struct *alloc_workqueue(const char *fmt, unsigned int flags, int max_active, ...)
{
	struct workqueue_struct *wq;
	va_list args;

	va_start(args, max_active);
	wq = create(fmt, flags, max_active, args);
	va_end(args);
	return wq;
}

struct workqueue_struct *alloc_ordered_workqueue(const char *fmt, unsigned int flags, ...)
{
	struct workqueue_struct *wq;
	va_list args;

	va_start(args, flags);
	wq = create(fmt, flags | WQ_UNBOUND | __WQ_ORDERED, 1, args);
	va_end(args);
	return wq;
}

void destroy_workqueue(struct workqueue_struct *wq)
{
	uw_kernel_queued(uw_queue_destroy(uw_kernel_queue(wq)));
}

/* ------------------------------------------------------------------------------------- attributes */

struct workqueue_attrs *alloc_workqueue_attrs(void)
{
	struct workqueue_attrs *attrs = kzalloc(sizeof(*attrs), GFP_KERNEL);

	if (attrs && !uw_kernel_alloc_mask(&attrs->cpumask)) {
		kfree(attrs);
		return NULL;
	}
	if (attrs) {
		/* A new queue has the niceness of the main thread: a caller that sets other attributes keeps it. */
		attrs->nice = uw_task_nice_of(getpid());
		cpumask_copy(attrs->cpumask, cpu_possible_mask);
	}
	return attrs;
}

void free_workqueue_attrs(struct workqueue_attrs *attrs)
{
	if (attrs) {
		uw_kernel_free_mask(attrs->cpumask);
		kfree(attrs);
	}
}

int apply_workqueue_attrs(struct workqueue_struct *wq, const struct workqueue_attrs *attrs)
{
	struct uw_queue *queue = uw_kernel_queue(wq);
	int error = uw_queue_set_nice(queue, attrs->nice);

	if (!error && attrs->cpumask && !cpumask_empty(attrs->cpumask))
		error = uw_queue_set_cpumask(queue, attrs->cpumask->bits, sizeof(attrs->cpumask->bits));
	if (!error)
		error = uw_queue_set_scope(queue, attrs->affn_scope);
	if (!error)
		error = uw_queue_set_strict(queue, attrs->affn_strict);
	return error;
}

void workqueue_set_max_active(struct workqueue_struct *wq, int max_active)
{
	unsigned int most = max_active < 1 ? 1 : max_active > WQ_MAX_ACTIVE ? WQ_MAX_ACTIVE : (unsigned int)max_active;

	uw_kernel_queued(uw_queue_set_max_active(uw_kernel_queue(wq), most));
}

void workqueue_set_min_active(struct workqueue_struct *wq, int min_active)
{
	uw_kernel_queued(uw_queue_set_min_active(uw_kernel_queue(wq), min_active < 0 ? 0 : (unsigned int)min_active));
}

int workqueue_sysfs_register(struct workqueue_struct *wq)
{
	int flags = uw_queue_flags(uw_kernel_queue(wq));

	if (flags < 0)
		return flags;
	return flags & WQ_SYSFS ? 0 : -EOPNOTSUPP;
}

int workqueue_unbound_housekeeping_update(const struct cpumask *hk)
{
	(void)hk;
	return -EOPNOTSUPP;
}

/* -------------------------------------------------------------------------------------------- CPUs */

int schedule_on_each_cpu(work_func_t function)
{
	const struct cpumask *cpus = cpu_online_mask;
	struct work_struct *works;
	unsigned int cpu;

	if (!uw_kernel_may_wait())
		return -EDEADLK;
	works = kcalloc(nr_cpu_ids, sizeof(*works), GFP_KERNEL);
	if (!works)
		return -ENOMEM;
	for_each_cpu(cpu, cpus) {
		INIT_WORK(&works[cpu], function);
		schedule_work_on((int)cpu, &works[cpu]);
	}
	for_each_cpu(cpu, cpus)
		flush_work(&works[cpu]);
	kfree(works);
	return 0;
}

int execute_in_process_context(work_func_t function, struct execute_work *ew)
{
	if (!in_interrupt()) {
		function(&ew->work);
		return 0;
	}
	INIT_WORK(&ew->work, function);
	schedule_work(&ew->work);
	return 1;
}

long work_on_cpu(int cpu, long (*function)(void *arg), void *arg)
{
	long result = 0;
	int error = uw_work_on_cpu(cpu, function, arg, &result);

	return error ? error : result;
}

int workqueue_prepare_cpu(unsigned int cpu)
{
	(void)cpu;
	return 0;
}

int workqueue_online_cpu(unsigned int cpu)
{
	(void)cpu;
	return 0;
}

int workqueue_offline_cpu(unsigned int cpu)
{
	(void)cpu;
	return 0;
}

/* -------------------------------------------------------------------------------------- inspection */

void flush_scheduled_work(void)
{
	WARN_ONCE(true, "flush_scheduled_work() waits for what others have queued; make a queue of your own\n");
	flush_workqueue(system_percpu_wq);
}

void set_worker_desc(const char *fmt, ...)
{
	char text[WORKER_DESC_LEN];
	va_list args;

	va_start(args, fmt);
	uw_kernel_vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	uw_set_worker_desc(text);
}

static void show(const char *level, char *text)
{
	char *line = text;

	if (!text)
		return;
	while (*line) {
		char *end = strchrnul(line, '\n');
		int length = (int)(end - line);

		uw_kernel_printk("%s%.*s\n", level, length, line);
		line = *end ? end + 1 : end;
	}
	uw_string_free(text);
}

void print_worker_info(const char *log_lvl, struct task_struct *task)
{
	struct work_struct *work = current_work();
	char text[WORKER_DESC_LEN];

	/* For the worker of another thread a dump has the information. */
	if (task != current || !work)
		return;
	uw_work_description(uw_kernel_work(work), text, sizeof(text));
	uw_kernel_printk("%sWorkqueue: %ps (%s)\n", log_lvl, (void *)(uintptr_t)work->func, text);
}

void show_all_workqueues(void)
{
	show(KERN_INFO, uw_dump());
}

void show_one_workqueue(struct workqueue_struct *wq)
{
	show(KERN_INFO, uw_queue_dump(uw_kernel_queue(wq)));
}

void show_freezable_workqueues(void)
{
	show(KERN_INFO, uw_dump_queues(UW_FREEZABLE));
}

/* The kernel's lock-up detectors take a CPU. Here only the calling item is meant. */
void wq_watchdog_touch(int cpu)
{
	(void)cpu;
	uw_watchdog_touch();
}

/* ---------------------------------------------------------------------------------------- freezing */

void freeze_workqueues_begin(void)
{
	uw_kernel_queued(uw_freeze_begin());
}

bool freeze_workqueues_busy(void)
{
	return uw_kernel_queued(uw_freeze_is_busy());
}

void thaw_workqueues(void)
{
	uw_kernel_queued(uw_thaw());
}
