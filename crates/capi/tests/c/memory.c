// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * RLIMIT_AS a little above what the process uses. Calls that create or describe something fail with ENOMEM, or EAGAIN
 * where a thread is missing; none ends the process. What exists goes on, and after the limit has gone everything can be
 * created again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
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

static const struct {
	const char *name;
	void *(*make)(void);
} CALLS[] = {
	{ "uw_queue_create", make_queue },     { "a queue with a rescuer", make_ordered },
	{ "uw_percpu_create", make_percpu },   { "uw_percpu_cache_create", make_cache },
	{ "uw_percpu_cache_alloc", make_object }, { "uw_percpu_batch_create", make_batch },
	{ "uw_percpu_counter_create", make_counter }, { "uw_dump", make_dump },
	{ "uw_metrics", make_metrics },	       { "uw_counters", make_counters },
	{ "uw_sysfs_list", make_list },
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

static void use(struct uw_queue *queue)
{
	struct uw_work work = UW_WORK_INIT(count);
	void *result;
	int runs_before = atomic_load(&runs);
	struct uw_job *one;

	CHECK(uw_queue_work(queue, &work) == 1 && uw_work_flush(&work) >= 0);
	CHECK(uw_work_cancel_sync(&work) == 0 && atomic_load(&runs) == runs_before + 1);
	one = uw_queue_spawn(queue, job, &result);
	CHECK(one && uw_job_join(one, &result) == 0 && result == &result);
}

static void in_child(size_t number, size_t megabytes, bool is_started)
{
	struct uw_queue *queue = is_started ? uw_queue_create("first", 0, 0) : NULL;

	if (is_started) {
		CHECK(queue);
		cache = uw_percpu_cache_create("objects", 4096, 0);
		CHECK(cache);
		use(queue);
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
		use(queue);
	}
	CHECK(setrlimit(RLIMIT_AS, &before) == 0);
	if (!queue)
		queue = uw_queue_create("first", 0, 0);
	CHECK(queue);
	use(queue);
	CHECK(uw_queue_destroy(queue) == 0);
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
				pid_t pid = fork();

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
	CHECK(failed == 0);
	puts("ok");
	return failed != 0;
}
