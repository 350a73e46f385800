// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * RLIMIT_AS a little above what the process uses. Calls that create or describe something fail with ENOMEM, or EAGAIN
 * where a thread is missing; none ends the process. What exists goes on, and after the limit has gone everything can be
 * created again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

/* The sanitizers' runtimes need address space of their own, and end the process without it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_LIMIT 0
#else
#define CAN_LIMIT 1
#endif

#define MOST 1000000

static struct rlimit before;
static atomic_int runs;

static void count(struct uw_work *work)
{
	(void)work;
	atomic_fetch_add(&runs, 1);
}

static void *job(void *arg)
{
	return arg;
}

static void sink(void *const *items, size_t length, void *arg)
{
	(void)items;
	(void)length;
	(void)arg;
}

static size_t address_space(void)
{
	char line[256];
	size_t kilobytes = 0;
	FILE *file = fopen("/proc/self/status", "r");

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmSize: %zu", &kilobytes) == 1)
			break;
	fclose(file);
	CHECK(kilobytes > 0);
	return kilobytes * 1024;
}

static void limit(size_t more)
{
	struct rlimit limit = before;

	limit.rlim_cur = address_space() + more;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void *make_queue(void)
{
	return uw_queue_create("of-many", UW_NUMBERED, 0);
}

static void *make_ordered(void)
{
	return uw_queue_create("of-many", UW_NUMBERED | UW_ORDERED | UW_MEM_RECLAIM, 0);
}

static void *make_percpu(void)
{
	return uw_percpu_create(1 << 16);
}

static void *make_cache(void)
{
	return uw_percpu_cache_create("of-many", 4096, 0);
}

static struct uw_percpu_cache *cache;

static void *make_object(void)
{
	return uw_percpu_cache_alloc(cache);
}

static void *make_batch(void)
{
	return uw_percpu_batch_create(1 << 20, sink, NULL);
}

static void *make_counter(void)
{
	return uw_percpu_counter_create();
}

static void *make_dump(void)
{
	return uw_dump();
}

static void *make_metrics(void)
{
	return uw_metrics();
}

static void *make_counters(void)
{
	return uw_counters();
}

static void *make_list(void)
{
	char *list = NULL;
	int code = uw_sysfs_list("devices", &list);

	errno = -code;
	return list;
}

/* That of the process, if it was used before memory became short. */
static struct uw_queue *used;
static struct uw_bounded *bounded;

static void *make_job(void)
{
	return uw_queue_spawn(used, job, NULL);
}

static void *make_bounded(void)
{
	return uw_bounded_create(used, 8);
}

static void *make_bounded_job(void)
{
	return uw_bounded_spawn(bounded, job, NULL);
}

static void *make_task(void)
{
	return uw_task_current();
}

static void *start_hook(const struct uw_thread *thread, void *arg)
{
	(void)thread;
	return arg;
}

static void *make_hooks(void)
{
	struct uw_thread_hooks *hooks = uw_thread_hooks_add_lazy(start_hook, NULL, NULL);
	int code = hooks ? uw_queue_add_thread_hooks(used, hooks) : 0;

	if (hooks)
		CHECK(uw_thread_hooks_remove(hooks) == 0);
	errno = code < 0 ? -code : errno;
	return code < 0 ? NULL : hooks;
}

static const struct {
	const char *name;
	void *(*make)(void);
	bool needs_queue;
} CALLS[] = {
	{ "uw_queue_create", make_queue, false },
	{ "a queue with a rescuer", make_ordered, false },
	{ "uw_percpu_create", make_percpu, false },
	{ "uw_percpu_cache_create", make_cache, false },
	{ "uw_percpu_cache_alloc", make_object, false },
	{ "uw_percpu_batch_create", make_batch, false },
	{ "uw_percpu_counter_create", make_counter, false },
	{ "uw_dump", make_dump, false },
	{ "uw_metrics", make_metrics, false },
	{ "uw_counters", make_counters, false },
	{ "uw_sysfs_list", make_list, false },
	{ "uw_queue_spawn", make_job, true },
	{ "uw_bounded_create", make_bounded, true },
	{ "uw_bounded_spawn", make_bounded_job, true },
	{ "uw_task_current", make_task, false },
	{ "uw_thread_hooks_add_lazy", make_hooks, true },
};

/* Makes objects, which stay, until that fails. */
static void until_it_fails(size_t number)
{
	void *made = NULL;
	int i;

	for (i = 0; i < MOST; i++) {
		errno = 0;
		made = CALLS[number].make();
		if (!made)
			break;
	}
	if (made || (errno != ENOMEM && errno != EAGAIN)) {
		fprintf(stderr, "%s: %d objects, errno %d: %s\n", CALLS[number].name, i, errno, uw_error_text());
		exit(1);
	}
}

/* Where memory is short, a job may be refused: it takes the little that a program has left. */
static void use(struct uw_queue *queue, bool is_short)
{
	struct uw_work work = UW_WORK_INIT(count);
	void *result;
	int runs_before = atomic_load(&runs);
	struct uw_job *one;

	CHECK(uw_queue_work(queue, &work) == 1 && uw_work_flush(&work) >= 0);
	CHECK(uw_work_cancel_sync(&work) == 0 && atomic_load(&runs) == runs_before + 1);
	one = uw_queue_spawn(queue, job, &result);
	if (!one && is_short && errno == ENOMEM)
		return;
	CHECK(one && uw_job_join(one, &result) == 0 && result == &result);
}

static void in_child(size_t number, size_t megabytes, bool is_started)
{
	struct uw_queue *queue = is_started ? uw_queue_create("first", 0, 0) : NULL;

	if (is_started) {
		CHECK(queue);
		cache = uw_percpu_cache_create("objects", 4096, 0);
		used = queue;
		bounded = uw_bounded_create(queue, 1 << 20);
		CHECK(cache && bounded);
		use(queue, false);
	}
	limit(megabytes << 20);
	if (!is_started) {
		errno = 0;
		cache = uw_percpu_cache_create("objects", 4096, 0);
		CHECK(cache || errno == ENOMEM);
	}
	if (cache)
		until_it_fails(number);
	if (queue) {
		int code = uw_queue_set_scope(queue, UW_SCOPE_CPU);

		CHECK(code == 0 || code == -ENOMEM || code == -EAGAIN);
		use(queue, true);
	}
	CHECK(setrlimit(RLIMIT_AS, &before) == 0);
	if (!queue)
		queue = uw_queue_create("first", 0, 0);
	CHECK(queue);
	use(queue, false);
	CHECK(uw_queue_flush(queue) == 0);
	_exit(0);
}

static atomic_bool over;

/* Memory is refused and given again, at any moment. */
static void *change_limit(void *arg)
{
	struct rlimit none = before;

	(void)arg;
	none.rlim_cur = 1 << 20;
	while (!atomic_load(&over)) {
		CHECK(setrlimit(RLIMIT_AS, &none) == 0);
		sched_yield();
		CHECK(setrlimit(RLIMIT_AS, &before) == 0);
		sched_yield();
	}
	return NULL;
}

static void at_any_moment(void)
{
	const size_t calls = sizeof(CALLS) / sizeof(*CALLS);
	pthread_t thread;
	size_t i;

	used = uw_queue_create("first", 0, 0);
	bounded = uw_bounded_create(used, 1 << 20);
	cache = uw_percpu_cache_create("objects", 4096, 0);
	CHECK(used && bounded && cache);
	CHECK(pthread_create(&thread, NULL, change_limit, NULL) == 0);
	for (i = 0; i < 60 * calls; i++)
		(void)CALLS[i % calls].make();
	atomic_store(&over, true);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(setrlimit(RLIMIT_AS, &before) == 0);
	use(used, false);
	CHECK(uw_queue_flush(used) == 0);
	_exit(0);
}

int main(void)
{
	static const size_t megabytes[] = { 2, 24 };
	size_t i, room, failed = 0;
	int started, status;

	if (!CAN_LIMIT)
		return 0;
	CHECK(getrlimit(RLIMIT_AS, &before) == 0);
	for (i = 0; i < sizeof(CALLS) / sizeof(*CALLS); i++) {
		for (room = 0; room < sizeof(megabytes) / sizeof(*megabytes); room++) {
			for (started = 0; started < 2; started++) {
				pid_t pid;

				if (!started && CALLS[i].needs_queue)
					continue;
				pid = fork();
				CHECK(pid >= 0);
				if (pid == 0)
					in_child(i, megabytes[room], started);
				CHECK(waitpid(pid, &status, 0) == pid);
				if (status != 0) {
					fprintf(stderr, "%s with %zu MiB%s: status %#x\n", CALLS[i].name, megabytes[room],
						started ? "" : " at the start", (unsigned)status);
					failed++;
				}
			}
		}
	}
	for (i = 0; i < 4; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			at_any_moment();
		CHECK(waitpid(pid, &status, 0) == pid);
		if (status != 0) {
			fprintf(stderr, "a limit at any moment: status %#x\n", (unsigned)status);
			failed++;
		}
	}
	CHECK(failed == 0);
	puts("ok");
	return failed != 0;
}
