// SPDX-License-Identifier: MIT OR Apache-2.0
/* Choices before the library starts; the watchdog's reports about C functions. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

static sem_t reported, reported_deaf;
static int held[2];

/* Each stall is reported once. The test ignores all other reports. */
static void reporter(const char *text)
{
	/* The report names the function of the item that is in the way. */
	if (strstr(text, "stuck_on_a_pipe"))
		sem_post(&reported);
	if (strstr(text, "in stuck_and_deaf"))
		sem_post(&reported_deaf);
}

static void stuck_on_a_pipe(struct uw_work *work)
{
	char byte;

	(void)work;
	CHECK(read(held[0], &byte, 1) == 1);
}

/*
 * Blocks all signals as well, so its stack cannot be read: like a thread that is preempted for a
 * while.
 */
static void stuck_and_deaf(struct uw_work *work)
{
	sigset_t all, before;

	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
	stuck_on_a_pipe(work);
	CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

static void nothing(struct uw_work *work)
{
	(void)work;
}

static void setup(void)
{
	struct uw_setup setup = UW_SETUP_INIT;
	char *dump;

	/* In the debug mode this call ends the process. */
	CHECK(getenv("UWORK_DEBUG") || uw_setup(NULL) == -EINVAL);
	setup.size = 4;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "UW_SETUP_INIT"));
	setup.size = sizeof(setup);
	setup.blocking_tier = UW_TIER_STANDBY + 1;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "0 to 4"));
	setup.blocking_tier = UW_TIER_SAMPLING;
	setup.percpu_mode = UW_PERCPU_ASYMMETRIC + 1;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "0 to 3"));
	setup.percpu_mode = UW_PERCPU_REMOTE;
	setup.power = UW_POWER_SAVE + 1;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "0 to 2"));
	setup.power = UW_POWER_SAVE;
	CHECK(uw_setup(&setup) == 0);
	CHECK(uw_setup(&setup) == -EEXIST && strstr(uw_error_text(), "already"));

	dump = uw_dump();
	CHECK(dump && (getenv("UWORK_BLOCKING") || strstr(dump, "sampling")));
	uw_string_free(dump);
}

/* Keeps an item in the way of others until a report has named it. */
static void in_the_way(uw_work_fn func, sem_t *named)
{
	struct uw_queue *queue = uw_queue_create("in-order", UW_ORDERED, 0);
	struct uw_work stuck = UW_WORK_INIT(func);
	struct uw_work behind = UW_WORK_INIT(nothing);

	CHECK(queue);
	CHECK(uw_queue_work(queue, &stuck) == 1 && uw_queue_work(queue, &behind) == 1);
	while (sem_wait(named) != 0)
		CHECK(errno == EINTR);
	CHECK(write(held[1], "x", 1) == 1);
	CHECK(uw_queue_destroy(queue) == 0);
}

static void watchdog(void)
{
	CHECK(uw_watchdog_thresh() == 30ull * 1000 * 1000 * 1000);
	uw_watchdog_set_thresh(1);
	CHECK(uw_watchdog_thresh() == 1000 * 1000);
	uw_watchdog_touch();

	CHECK(pipe(held) == 0 && sem_init(&reported, 0, 0) == 0 && sem_init(&reported_deaf, 0, 0) == 0);
	CHECK(uw_set_reporter(reporter) == 0);
	in_the_way(stuck_on_a_pipe, &reported);
	in_the_way(stuck_and_deaf, &reported_deaf);
	uw_watchdog_set_thresh(0);
	CHECK(uw_watchdog_thresh() == 0);
}

int main(void)
{
	setup();
	watchdog();
	puts("ok");
	return 0;
}
