/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A call of every function of uwork.h, for tests that make each in a forked child. The parent has queues with rescuers,
 * pending, running and armed items at the fork. `cargo xtask tidy` compares the table with the header. Every function
 * that the library calls back is a cancellation point.
 */
#ifndef CALLS_H
#define CALLS_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

/* Queues of the parent. Each of the kinds that differ in what a child has to create. */
static struct uw_queue *plain, *reclaim, *ordered, *percpu_queue, *dedicated, *extra;
/* Its only permit is held by an item that runs in the parent: the items behind it are inherited. */
static struct uw_queue *inherited;
static struct uw_work holder, behind[4], idle, pending, disabled;
static struct uw_delayed_work armed, timer;
static struct uw_rcu_work graced;
static struct uw_percpu_work located;
static struct uw_task_work noted;
static struct uw_job *finished, *spare;
static struct uw_bounded *bounded;
static struct uw_percpu *percpu;
static struct uw_percpu_cache *cache;
static struct uw_percpu_batch *batch;
static struct uw_percpu_counter *counter;
static struct uw_task *task;
static struct uw_thread_hooks *hooks;
static struct uw_counters *counters;
static void *object, *block;
static char *text, buffer[256];
static unsigned long mask[64];
static long number;
static void *result;
static int gate[2], input[2];
static atomic_int inherited_runs;

static void nothing(struct uw_work *work)
{
	(void)work;
	pthread_testcancel();
}

static void count(struct uw_work *work)
{
	(void)work;
	pthread_testcancel();
	atomic_fetch_add(&inherited_runs, 1);
}

/* Runs until the parent closes the gate. */
static void hold(struct uw_work *work)
{
	char byte;

	(void)work;
	CHECK(read(gate[0], &byte, 1) == 0);
}

static void note(struct uw_task_work *work)
{
	(void)work;
	pthread_testcancel();
}

static bool matches(struct uw_task_work *work, void *arg)
{
	(void)work;
	(void)arg;
	pthread_testcancel();
	return true;
}

static void *job(void *arg)
{
	pthread_testcancel();
	return arg;
}

static void call(void *arg)
{
	(void)arg;
	pthread_testcancel();
}

static int wait_once(void *arg)
{
	(void)arg;
	pthread_testcancel();
	return 0;
}

static long on_cpu(void *arg)
{
	(void)arg;
	pthread_testcancel();
	return 7;
}

static void on_each_cpu(int cpu, void *arg)
{
	(void)cpu;
	(void)arg;
	pthread_testcancel();
}

static void with_block(int cpu, void *block, void *arg)
{
	(void)cpu;
	(void)block;
	(void)arg;
	pthread_testcancel();
}

static void sink(void *const *items, size_t length, void *arg)
{
	(void)items;
	(void)length;
	(void)arg;
	pthread_testcancel();
}

static void *start_hook(const struct uw_thread *thread, void *arg)
{
	(void)thread;
	pthread_testcancel();
	return arg;
}

static void report(const char *line)
{
	pthread_testcancel();
	fprintf(stderr, "%s\n", line);
}

static void report_to(void *arg, const char *line)
{
	(void)arg;
	report(line);
}

static int first_cpu(void)
{
	cpu_set_t set;
	int cpu = 0;

	CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
	while (!CPU_ISSET((size_t)cpu, &set))
		cpu++;
	return cpu;
}

static void *lock_and_unlock(void *block)
{
	if (block)
		CHECK(uw_percpu_unlock(percpu, block) == 0);
	return block;
}

/* Of an item that is in the calling thread's list: the parent's items are not in the child's. */
static void cancel_matching(void)
{
	struct uw_task *own = uw_task_current();

	uw_task_work_init(&noted, note);
	CHECK(own && uw_task_work_add(own, &noted, UW_NOTIFY_NONE) == 1);
	CHECK(uw_task_work_cancel_match(own, matches, NULL) == &noted);
	uw_task_put(own);
}

static long get_pid(void)
{
	long arguments[6] = { 0 };

	return uw_task_syscall(SYS_getpid, arguments);
}

static const struct uw_setup setup = UW_SETUP_INIT;
static const struct uw_queue_attrs attributes = UW_QUEUE_ATTRS_INIT;

/* What a child does after its first call. */
enum { WORKS, SHUT_DOWN };

/*
 * X(FUNCTION, CALL, AFTERWARDS). Calls that fail are first calls, too. The queue functions are called for a queue with a
 * rescuer.
 */
/* clang-format off */
#define CALLS(X) \
	X(uw_error_text, uw_error_text(), WORKS) \
	X(uw_string_free, uw_string_free(text), WORKS) \
	X(uw_version, uw_version(), WORKS) \
	X(uw_setup, uw_setup(&setup), WORKS) \
	X(uw_work_init, uw_work_init(&idle, nothing), WORKS) \
	X(uw_delayed_work_init, uw_delayed_work_init(&timer, nothing, 0, 0), WORKS) \
	X(uw_rcu_work_init, uw_rcu_work_init(&graced, nothing), WORKS) \
	X(uw_queue_create, uw_queue_create("new", UW_UNBOUND | UW_MEM_RECLAIM, 0), WORKS) \
	X(uw_queue_create_attrs, uw_queue_create_attrs("new", &attributes), WORKS) \
	X(uw_queue_destroy, uw_queue_destroy(extra), WORKS) \
	X(uw_queue_flush, uw_queue_flush(reclaim), WORKS) \
	X(uw_queue_flush_timeout, uw_queue_flush_timeout(reclaim, 1), WORKS) \
	X(uw_queue_drain, uw_queue_drain(reclaim), WORKS) \
	X(uw_queue_pause, (uw_queue_pause(reclaim), uw_queue_resume(reclaim)), WORKS) \
	X(uw_queue_pause_timeout, (uw_queue_pause_timeout(reclaim, 1), uw_queue_resume(reclaim)), WORKS) \
	X(uw_queue_resume, uw_queue_resume(reclaim), WORKS) \
	X(uw_queue_is_paused, uw_queue_is_paused(reclaim), WORKS) \
	X(uw_queue_is_idle, uw_queue_is_idle(reclaim), WORKS) \
	X(uw_system_queue, uw_system_queue(UW_SYSTEM_LONG), WORKS) \
	X(uw_queue_name, uw_queue_name(reclaim, buffer, sizeof buffer), WORKS) \
	X(uw_queue_flags, uw_queue_flags(reclaim), WORKS) \
	X(uw_queue_max_active, uw_queue_max_active(reclaim), WORKS) \
	X(uw_queue_set_max_active, uw_queue_set_max_active(reclaim, 7), WORKS) \
	X(uw_queue_min_active, uw_queue_min_active(reclaim), WORKS) \
	X(uw_queue_set_min_active, uw_queue_set_min_active(reclaim, 2), WORKS) \
	X(uw_queue_scope, uw_queue_scope(reclaim, buffer, sizeof buffer), WORKS) \
	X(uw_queue_set_scope, uw_queue_set_scope(reclaim, UW_SCOPE_CPU), WORKS) \
	X(uw_queue_set_strict, uw_queue_set_strict(reclaim, true), WORKS) \
	X(uw_queue_set_nice, uw_queue_set_nice(reclaim, 7), WORKS) \
	X(uw_queue_cpumask, uw_queue_cpumask(reclaim, mask, sizeof mask), WORKS) \
	X(uw_queue_set_cpumask, uw_queue_set_cpumask(reclaim, mask, sizeof mask), WORKS) \
	X(uw_queue_timer_slack, uw_queue_timer_slack(reclaim), WORKS) \
	X(uw_queue_set_timer_slack, uw_queue_set_timer_slack(reclaim, 1000), WORKS) \
	X(uw_queue_is_congested, uw_queue_is_congested(inherited), WORKS) \
	X(uw_queue_is_congested_on, uw_queue_is_congested_on(inherited, first_cpu()), WORKS) \
	X(uw_queue_check_cpu, uw_queue_check_cpu(reclaim, first_cpu()), WORKS) \
	X(uw_queue_work, uw_queue_work(inherited, &idle), WORKS) \
	X(uw_queue_work_on, uw_queue_work_on(reclaim, first_cpu(), &idle), WORKS) \
	X(uw_queue_work_node, uw_queue_work_node(reclaim, 0, &idle), WORKS) \
	X(uw_queue_delayed_work, uw_queue_delayed_work(reclaim, &timer, 1), WORKS) \
	X(uw_queue_delayed_work_on, uw_queue_delayed_work_on(reclaim, first_cpu(), &timer, 1), WORKS) \
	X(uw_mod_delayed_work, uw_mod_delayed_work(reclaim, &armed, 1), WORKS) \
	X(uw_mod_delayed_work_on, uw_mod_delayed_work_on(reclaim, first_cpu(), &armed, 1), WORKS) \
	X(uw_queue_rcu_work, uw_queue_rcu_work(reclaim, &graced), WORKS) \
	X(uw_enable_and_queue_work, uw_enable_and_queue_work(reclaim, &disabled), WORKS) \
	X(uw_rcu_read_lock, (uw_rcu_read_lock(), uw_rcu_read_unlock()), WORKS) \
	X(uw_rcu_read_unlock, (uw_rcu_read_lock(), uw_rcu_read_unlock()), WORKS) \
	X(uw_rcu_is_read_locked, uw_rcu_is_read_locked(), WORKS) \
	X(uw_work_cancel, uw_work_cancel(&behind[0]), WORKS) \
	X(uw_work_cancel_sync, uw_work_cancel_sync(&holder), WORKS) \
	X(uw_work_disable, uw_work_disable(&pending), WORKS) \
	X(uw_work_disable_sync, uw_work_disable_sync(&holder), WORKS) \
	X(uw_work_enable, uw_work_enable(&disabled), WORKS) \
	X(uw_work_flush, uw_work_flush(&behind[1]), WORKS) \
	X(uw_work_flush_helping, uw_work_flush_helping(&behind[1]), WORKS) \
	X(uw_delayed_work_flush, uw_delayed_work_flush(&armed), WORKS) \
	X(uw_rcu_work_flush, uw_rcu_work_flush(&graced), WORKS) \
	X(uw_work_is_pending, uw_work_is_pending(&pending), WORKS) \
	X(uw_work_busy, uw_work_busy(&holder), WORKS) \
	X(uw_blocking, uw_blocking(call, NULL), WORKS) \
	X(uw_unpinned, uw_unpinned(call, NULL), WORKS) \
	X(uw_current_work, uw_current_work(), WORKS) \
	X(uw_current_is_rescuer, uw_current_is_rescuer(), WORKS) \
	X(uw_set_worker_desc, uw_set_worker_desc("child"), WORKS) \
	X(uw_work_description, uw_work_description(&holder, buffer, sizeof buffer), WORKS) \
	X(uw_queue_spawn, uw_queue_spawn(reclaim, job, NULL), WORKS) \
	X(uw_job_join, uw_job_join(finished, &result), WORKS) \
	X(uw_job_join_waiting, uw_job_join_waiting(finished, &result), WORKS) \
	X(uw_job_cancel, uw_job_cancel(finished), WORKS) \
	X(uw_job_is_finished, uw_job_is_finished(finished), WORKS) \
	X(uw_job_detach, uw_job_detach(finished), WORKS) \
	X(uw_bounded_create, uw_bounded_create(reclaim, 4), WORKS) \
	X(uw_bounded_destroy, uw_bounded_destroy(bounded), WORKS) \
	X(uw_bounded_spawn, uw_bounded_spawn(bounded, job, NULL), WORKS) \
	X(uw_bounded_try_spawn, uw_bounded_try_spawn(bounded, job, NULL), WORKS) \
	X(uw_bounded_spawn_timeout, uw_bounded_spawn_timeout(bounded, job, NULL, 1), WORKS) \
	X(uw_bounded_reserve, uw_bounded_reserve(bounded), WORKS) \
	X(uw_bounded_try_reserve, uw_bounded_try_reserve(bounded), WORKS) \
	X(uw_bounded_reserve_timeout, uw_bounded_reserve_timeout(bounded, 1), WORKS) \
	X(uw_bounded_release, uw_bounded_release(bounded), WORKS) \
	X(uw_work_on_cpu, uw_work_on_cpu(first_cpu(), on_cpu, NULL, &number), WORKS) \
	X(uw_on_each_cpu, uw_on_each_cpu(on_each_cpu, NULL), WORKS) \
	X(uw_cpus, uw_cpus(UW_CPUS_ALLOWED, mask, sizeof mask), WORKS) \
	X(uw_cpu_node, uw_cpu_node(first_cpu()), WORKS) \
	X(uw_percpu_mode, uw_percpu_mode(), WORKS) \
	X(uw_percpu_reason, uw_percpu_reason(buffer, sizeof buffer), WORKS) \
	X(uw_percpu_create, uw_percpu_create(64), WORKS) \
	X(uw_percpu_destroy, uw_percpu_destroy(percpu), WORKS) \
	X(uw_percpu_cpus, uw_percpu_cpus(percpu), WORKS) \
	X(uw_percpu_lock_local, lock_and_unlock(uw_percpu_lock_local(percpu)), WORKS) \
	X(uw_percpu_trylock_local, lock_and_unlock(uw_percpu_trylock_local(percpu)), WORKS) \
	X(uw_percpu_lock, lock_and_unlock(uw_percpu_lock(percpu, first_cpu())), WORKS) \
	X(uw_percpu_trylock, lock_and_unlock(uw_percpu_trylock(percpu, first_cpu())), WORKS) \
	X(uw_percpu_unlock, uw_percpu_unlock(percpu, uw_percpu_lock_local(percpu)), WORKS) \
	X(uw_percpu_cpu_of, uw_percpu_cpu_of(percpu, block), WORKS) \
	X(uw_percpu_with, uw_percpu_with(percpu, first_cpu(), with_block, NULL), WORKS) \
	X(uw_percpu_for_each, uw_percpu_for_each(percpu, with_block, NULL), WORKS) \
	X(uw_percpu_work_init, uw_percpu_work_init(&located, nothing, first_cpu()), WORKS) \
	X(uw_percpu_queue_on, uw_percpu_queue_on(percpu_queue, first_cpu(), &located), WORKS) \
	X(uw_percpu_flush, uw_percpu_flush(&located), WORKS) \
	X(uw_percpu_is_remote, uw_percpu_is_remote(first_cpu()), WORKS) \
	X(uw_percpu_cache_create, uw_percpu_cache_create("new", 64, 0), WORKS) \
	X(uw_percpu_cache_alloc, uw_percpu_cache_alloc(cache), WORKS) \
	X(uw_percpu_cache_free, uw_percpu_cache_free(cache, object), WORKS) \
	X(uw_percpu_cache_flush_all, uw_percpu_cache_flush_all(cache), WORKS) \
	X(uw_percpu_cache_shrink, uw_percpu_cache_shrink(cache), WORKS) \
	X(uw_percpu_cache_stats, uw_percpu_cache_stats(cache, &(struct uw_percpu_cache_stats){ 0 }), WORKS) \
	X(uw_percpu_cache_destroy, uw_percpu_cache_destroy(cache), WORKS) \
	X(uw_percpu_batch_create, uw_percpu_batch_create(4, sink, NULL), WORKS) \
	X(uw_percpu_batch_add, uw_percpu_batch_add(batch, buffer), WORKS) \
	X(uw_percpu_batch_drain_all, uw_percpu_batch_drain_all(batch), WORKS) \
	X(uw_percpu_batch_destroy, uw_percpu_batch_destroy(batch), WORKS) \
	X(uw_percpu_counter_create, uw_percpu_counter_create(), WORKS) \
	X(uw_percpu_counter_add, uw_percpu_counter_add(counter, 1), WORKS) \
	X(uw_percpu_counter_sum, uw_percpu_counter_sum(counter), WORKS) \
	X(uw_percpu_counter_destroy, uw_percpu_counter_destroy(counter), WORKS) \
	X(uw_task_current, uw_task_current(), WORKS) \
	X(uw_task_get, uw_task_get(task), WORKS) \
	X(uw_task_put, uw_task_put(task), WORKS) \
	X(uw_task_work_init, uw_task_work_init(&noted, note), WORKS) \
	X(uw_task_work_add, uw_task_work_add(task, &noted, UW_NOTIFY_SIGNAL), WORKS) \
	X(uw_task_work_cancel, uw_task_work_cancel(task, &noted), WORKS) \
	X(uw_task_work_cancel_match, (uw_task_work_cancel_match(task, matches, NULL), cancel_matching()), WORKS) \
	X(uw_task_work_is_pending, uw_task_work_is_pending(&noted), WORKS) \
	X(uw_task_run, uw_task_run(), WORKS) \
	X(uw_task_run_once, uw_task_run_once(), WORKS) \
	X(uw_task_safe_point, uw_task_safe_point(), WORKS) \
	X(uw_task_is_notified, uw_task_is_notified(), WORKS) \
	X(uw_task_park, uw_task_park(0), WORKS) \
	X(uw_task_fd, uw_task_fd(), WORKS) \
	X(uw_task_wait, uw_task_wait(wait_once, NULL), WORKS) \
	X(uw_task_read, uw_task_read(input[0], buffer, 1), WORKS) \
	X(uw_task_syscall, get_pid(), WORKS) \
	X(uw_task_set_delivery, uw_task_set_delivery(UW_DELIVERY_LIGHT), WORKS) \
	X(uw_task_set_signal, uw_task_set_signal(SIGRTMIN + 3, true), WORKS) \
	X(uw_task_exit, uw_task_exit(), WORKS) \
	X(uw_thread_hooks_add, uw_thread_hooks_add(start_hook, NULL, NULL), WORKS) \
	X(uw_thread_hooks_add_lazy, uw_thread_hooks_add_lazy(start_hook, NULL, NULL), WORKS) \
	X(uw_queue_add_thread_hooks, uw_queue_add_thread_hooks(plain, hooks), WORKS) \
	X(uw_thread_hooks_remove, uw_thread_hooks_remove(hooks), WORKS) \
	X(uw_thread_hooks_remove_sync, uw_thread_hooks_remove_sync(hooks), WORKS) \
	X(uw_thread_hooks_missed, uw_thread_hooks_missed(hooks), WORKS) \
	X(uw_thread_state, uw_thread_state(hooks), WORKS) \
	X(uw_dump, uw_dump(), WORKS) \
	X(uw_queue_dump, uw_queue_dump(reclaim), WORKS) \
	X(uw_dump_queues, uw_dump_queues(UW_MEM_RECLAIM), WORKS) \
	X(uw_dump_on_signal, uw_dump_on_signal(SIGUSR2), WORKS) \
	X(uw_sysfs_get, uw_sysfs_get("module/parameters/power_efficient", buffer, sizeof buffer), WORKS) \
	X(uw_sysfs_set, uw_sysfs_set("devices/first-reclaim/nice", "3"), WORKS) \
	X(uw_sysfs_list, uw_sysfs_list("devices", &text), WORKS) \
	X(uw_set_reporter, uw_set_reporter(report), WORKS) \
	X(uw_replace_reporter, uw_replace_reporter(report_to, NULL), WORKS) \
	X(uw_watchdog_thresh, uw_watchdog_thresh(), WORKS) \
	X(uw_watchdog_set_thresh, uw_watchdog_set_thresh(1000000000), WORKS) \
	X(uw_watchdog_touch, uw_watchdog_touch(), WORKS) \
	X(uw_counters, uw_counters(), WORKS) \
	X(uw_counters_free, uw_counters_free(counters), WORKS) \
	X(uw_metrics, uw_metrics(), WORKS) \
	X(uw_panics, uw_panics(), WORKS) \
	X(uw_freeze_begin, (uw_freeze_begin(), uw_thaw()), WORKS) \
	X(uw_freeze_is_busy, uw_freeze_is_busy(), WORKS) \
	X(uw_thaw, uw_thaw(), WORKS) \
	X(uw_shutdown, uw_shutdown(UW_CANCEL, 1000000000, NULL), SHUT_DOWN) \
	X(uw_debug_check_freed, uw_debug_check_freed(buffer, sizeof buffer), WORKS)
/* clang-format on */

#define DEFINE(name, expression, afterwards) \
	static void call_##name(void) \
	{ \
		(void)(expression); \
	}
CALLS(DEFINE)

static const struct {
	const char *name;
	void (*call)(void);
	int afterwards;
} CASES[] = {
#define ENTRY(name, expression, afterwards) { #name, call_##name, afterwards },
	CALLS(ENTRY)
};

/* The child's queues work: the parent's, a new one, and the inherited items have run. */
static void use_queues(void)
{
	struct uw_queue *queues[] = { plain, reclaim, ordered, percpu_queue, dedicated, inherited, NULL };
	struct uw_work work = UW_WORK_INIT(nothing);
	struct uw_delayed_work delayed = UW_DELAYED_WORK_INIT(nothing);
	struct uw_queue *fresh = uw_queue_create("fresh", UW_UNBOUND | UW_MEM_RECLAIM, 0);
	size_t i;

	CHECK(fresh);
	for (i = 0; queues[i]; i++) {
		CHECK(uw_queue_work(queues[i], &work) == 1);
		CHECK(uw_queue_flush(queues[i]) == 0);
		CHECK(!uw_work_is_pending(&work));
		CHECK(uw_queue_delayed_work(queues[i], &delayed, 1000) == 1);
		CHECK(uw_delayed_work_flush(&delayed) >= 0);
		CHECK(uw_work_cancel_sync(&work) == 0);
		CHECK(uw_work_cancel_sync(&delayed.work) >= 0);
	}
	CHECK(uw_queue_work(fresh, &work) == 1);
	CHECK(uw_queue_destroy(fresh) == 0);
}

static void prepare(void)
{
	size_t i;

	CHECK(pipe(gate) == 0);
	CHECK(pipe(input) == 0);
	/* A byte for each child that reads. */
	CHECK(write(input[1], "xx", 2) == 2);
	hooks = uw_thread_hooks_add(start_hook, NULL, NULL);
	CHECK(hooks);
	plain = uw_queue_create("first-plain", UW_UNBOUND, 0);
	reclaim = uw_queue_create("first-reclaim", UW_UNBOUND | UW_MEM_RECLAIM | UW_SYSFS, 0);
	ordered = uw_queue_create("first-ordered", UW_ORDERED | UW_MEM_RECLAIM, 0);
	percpu_queue = uw_queue_create("first-percpu", UW_PERCPU | UW_FREEZABLE, 0);
	dedicated = uw_queue_create_attrs("first-dedicated",
					  &(struct uw_queue_attrs){ .size = sizeof(struct uw_queue_attrs),
								    .nice = UW_NICE_UNSET,
								    .dedicated = true });
	extra = uw_queue_create("first-extra", UW_UNBOUND | UW_MEM_RECLAIM, 0);
	inherited = uw_queue_create("first-inherited", UW_ORDERED | UW_FORK_INHERITED, 0);
	CHECK(plain && reclaim && ordered && percpu_queue && dedicated && extra && inherited);

	CHECK(uw_cpus(UW_CPUS_ALLOWED, mask, sizeof mask) > 0);
	uw_work_init(&holder, hold);
	uw_work_init(&idle, nothing);
	uw_work_init(&pending, nothing);
	uw_work_init(&disabled, nothing);
	uw_delayed_work_init(&armed, nothing, 0, 0);
	uw_delayed_work_init(&timer, nothing, 0, 0);
	uw_rcu_work_init(&graced, nothing);
	uw_percpu_work_init(&located, nothing, first_cpu());
	uw_task_work_init(&noted, note);
	CHECK(uw_work_disable(&disabled) >= 0);
	CHECK(uw_queue_work(inherited, &holder) == 1);
	while (!(uw_work_busy(&holder) & UW_BUSY_RUNNING))
		sched_yield();
	for (i = 0; i < sizeof behind / sizeof *behind; i++) {
		uw_work_init(&behind[i], count);
		CHECK(uw_queue_work(inherited, &behind[i]) == 1);
	}
	CHECK(uw_queue_delayed_work(reclaim, &armed, 3600000000000ull) == 1);

	finished = uw_queue_spawn(plain, job, NULL);
	spare = uw_queue_spawn(plain, job, NULL);
	bounded = uw_bounded_create(plain, 8);
	CHECK(finished && spare && bounded);
	CHECK(uw_bounded_reserve(bounded) >= 0);
	CHECK(uw_queue_flush(plain) == 0);
	percpu = uw_percpu_create(64);
	cache = uw_percpu_cache_create("first", 64, 0);
	batch = uw_percpu_batch_create(4, sink, NULL);
	counter = uw_percpu_counter_create();
	CHECK(percpu && cache && batch && counter);
	object = uw_percpu_cache_alloc(cache);
	block = uw_percpu_lock_local(percpu);
	CHECK(block && uw_percpu_unlock(percpu, block) == 0);
	task = uw_task_current();
	text = uw_dump();
	counters = uw_counters();
	CHECK(object && task && text && counters);
}

/* The parent's items run as if it had not forked. */
static void end_parent(void)
{
	CHECK(close(gate[1]) == 0);
	CHECK(uw_queue_flush(inherited) == 0);
	CHECK(atomic_load(&inherited_runs) == 4);
	CHECK(uw_work_cancel_sync(&armed.work) == 1);
}

#endif
