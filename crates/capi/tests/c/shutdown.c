// SPDX-License-Identifier: MIT OR Apache-2.0
/* Forks, reports and shutdown. */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "item.h"

/*
 * The address sanitizer's allocator has locks that it does not hold over a fork, and a thread of the
 * child allocates. The thread sanitizer takes a child's thread that has the address of a thread of
 * the parent for the same thread.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHILD_MAY_START_THREADS 0
#else
#define CHILD_MAY_START_THREADS 1
#endif

/* A child may use everything immediately, without an effect on the parent. */
static void forked(void)
{
	struct uw_queue *queue = make("forked");
	struct item item;
	int status;
	pid_t child;

	init(&item);
	CHECK(uw_queue_delayed_work(queue, &item.delayed, HOUR) == 1);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		if (uw_work_is_pending(&item.delayed.work) != 0 || uw_queue_work(queue, &item.work) != 1)
			_exit(1);
		uw_work_flush(&item.work);
		_exit(atomic_load(&item.runs) == 1 ? 0 : 2);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(uw_work_cancel_sync(&item.delayed.work) == 1);
	CHECK(uw_queue_destroy(queue) == 0);
}

static atomic_int reports;

static void reporter(const char *text)
{
	/* The test ignores all other reports, for example of the watchdog on a busy machine. */
	if (strstr(text, "\"unplaced\""))
		atomic_fetch_add(&reports, 1);
}

static void reports_and_shutdown(void)
{
	struct uw_queue *queue;
	struct item item;
	char *report;

	CHECK(uw_set_reporter(reporter) == 0 && uw_set_reporter(reporter) == -EEXIST);
	/* By the kernel's rules this is a per-CPU queue, with a report. */
	queue = uw_queue_create("unplaced", UW_KERNEL_RULES, 0);
	CHECK(queue && (uw_queue_flags(queue) & (int)UW_PERCPU));
	CHECK(atomic_load(&reports) == 1);
	init(&item);
	CHECK(uw_queue_work(queue, &item.work) == 1);
	CHECK(uw_shutdown(7, 0, NULL) == -EINVAL);
	CHECK(uw_shutdown(UW_DRAIN, HOUR, &report) == 0 && report[0]);
	uw_string_free(report);
	CHECK(atomic_load(&item.runs) == 1);
	CHECK(uw_queue_work(queue, &item.work) == -ESHUTDOWN);
	CHECK(!uw_queue_create("late", UW_UNBOUND, 0) && errno == ESHUTDOWN);
	CHECK(strstr(uw_error_text(), "uwork was shut down in this process"));
	CHECK(uw_queue_destroy(queue) == 0);
}

int main(void)
{
	if (CHILD_MAY_START_THREADS)
		forked();
	reports_and_shutdown();
	puts("ok");
	return 0;
}
