// SPDX-License-Identifier: MIT OR Apache-2.0
/* What is chosen before the library starts; what the watchdog says of C functions. */
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

static sem_t reported;
static int held[2];

/* Stalls are reported once each; what else is said is of no interest here. */
static void reporter(const char *text)
{
	/* Who is in the way, with the function's name. */
	if (strstr(text, "stuck_on_a_pipe"))
		sem_post(&reported);
}

static void stuck_on_a_pipe(struct uw_work *work)
{
	char byte;

	(void)work;
	CHECK(read(held[0], &byte, 1) == 1);
}

static void nothing(struct uw_work *work)
{
	(void)work;
}

static void setup(void)
{
	struct uw_setup setup = UW_SETUP_INIT;
	char *dump;

	/* In the debug mode this ends the process. */
	CHECK(getenv("UWORK_DEBUG") || uw_setup(NULL) == -EINVAL);
	setup.size = 4;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "UW_SETUP_INIT"));
	setup.size = sizeof(setup);
	setup.blocking_tier = UW_TIER_DECLARED + 1;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "0 to 3"));
	setup.blocking_tier = UW_TIER_SAMPLING;
	setup.percpu_mode = UW_PERCPU_ASYMMETRIC + 1;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "0 to 3"));
	setup.percpu_mode = UW_PERCPU_REMOTE;
	CHECK(uw_setup(&setup) == 0);
	CHECK(uw_setup(&setup) == -EEXIST && strstr(uw_error_text(), "already"));

	dump = uw_dump();
	CHECK(dump && (getenv("UWORK_BLOCKING") || strstr(dump, "sampling")));
	uw_string_free(dump);
}

static void watchdog(void)
{
	struct uw_queue *queue;
	struct uw_work stuck = UW_WORK_INIT(stuck_on_a_pipe);
	struct uw_work behind = UW_WORK_INIT(nothing);

	CHECK(uw_watchdog_thresh() == 30ull * 1000 * 1000 * 1000);
	uw_watchdog_set_thresh(1);
	CHECK(uw_watchdog_thresh() == 1000 * 1000);
	uw_watchdog_touch();

	CHECK(pipe(held) == 0 && sem_init(&reported, 0, 0) == 0);
	CHECK(uw_set_reporter(reporter) == 0);
	queue = uw_queue_create("in-order", UW_ORDERED, 0);
	CHECK(queue);
	CHECK(uw_queue_work(queue, &stuck) == 1 && uw_queue_work(queue, &behind) == 1);
	while (sem_wait(&reported) != 0)
		CHECK(errno == EINTR);
	CHECK(write(held[1], "x", 1) == 1);
	CHECK(uw_queue_destroy(queue) == 0);
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
