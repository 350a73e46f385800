// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Each function of uwork-bridge.h as the first call of a forked child, while the parent has a consumer whose handler
 * runs, and a connected producer; and with a cancellation pending. No call hangs. The parent goes on as if it had not
 * forked. Argument: the server's address.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uwork-bridge.h>

#include "check.h"

/* Longer than any wait here takes, on any machine. */
#define LONG_NS (24 * 3600ULL * 1000 * 1000 * 1000)

static const char *server;
static int gate[2];
static struct uw_bridge *bridge;
static struct uw_bridge_producer *producer;
static struct uw_bridge_dead *letters;
/* That of the handler which runs. */
static struct uw_bridge_job *held;
static struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
static int faults;

static void report(const char *line, void *arg)
{
	(void)arg;
	fprintf(stderr, "%s\n", line);
	__atomic_fetch_add(&faults, 1, __ATOMIC_RELAXED);
}

/* Until the parent closes the gate. */
static int hold(struct uw_bridge_job *job, void *arg)
{
	char byte;

	(void)arg;
	__atomic_store_n(&held, job, __ATOMIC_RELEASE);
	CHECK(read(gate[0], &byte, 1) == 0);
	return UW_BRIDGE_DONE;
}

static int done(struct uw_bridge_job *job, void *arg)
{
	(void)job;
	(void)arg;
	return UW_BRIDGE_DONE;
}

static int push_one(struct uw_bridge_producer *to, const char *handler)
{
	struct uw_bridge_push job = { .payload = "x", .length = 1, .handler = handler };
	int outcome;
	int code = uw_bridge_push(to, &job, 1, &outcome);

	CHECK(code || outcome == UW_BRIDGE_ADDED);
	return code;
}

/* A consumer of the child's own, which runs a job. */
static int start_another(void)
{
	static const struct uw_bridge_handler handler = { NULL, done, NULL };
	const char *stream = "of-the-child";
	struct uw_bridge_config mine = config;
	struct uw_bridge_counters counters = { 0 };
	struct uw_bridge_producer *to;
	struct uw_bridge *other;

	mine.streams = &stream;
	other = uw_bridge_start(&mine, &handler, 1, report, NULL);
	CHECK(other);
	to = uw_bridge_producer_create(&mine);
	CHECK(to && push_one(to, NULL) == 0);
	uw_bridge_producer_destroy(to);
	while (counters.done == 0) {
		CHECK(uw_bridge_get_counters(other, &counters) == 0);
		sched_yield();
	}
	return uw_bridge_stop(other, LONG_NS, &counters);
}

static int is_refused(int code)
{
	CHECK(strstr(uw_error_text(), "the parent of this forked process"));
	return code == -ECANCELED ? 0 : code;
}

static int create_another(void)
{
	struct uw_bridge_producer *other = uw_bridge_producer_create(&config);
	int code = other ? push_one(other, "done") : -errno;

	uw_bridge_producer_destroy(other);
	return code;
}

static int create_letters(void)
{
	struct uw_bridge_dead *other = uw_bridge_dead_create(&config);
	int code = !other || uw_bridge_dead_next(other) ? -EINVAL : -errno;

	uw_bridge_dead_destroy(other);
	return code;
}

/* The parent asks meanwhile: on one connection each would get replies of the other. */
static int replay_often(void)
{
	int code = 0;

	for (int i = 0; i < 500 && code == 0; i++)
		code = uw_bridge_dead_replay(letters, NULL, NULL);
	return code;
}

static int destroy_letters(void)
{
	uw_bridge_dead_destroy(letters);
	return 0;
}

static int destroy(void)
{
	uw_bridge_producer_destroy(producer);
	return 0;
}

static const struct uw_bridge_word word = { "PING", 4 };
static struct uw_bridge_counters read_counters;

/* Each function of the header: the crate xtask compares. The result is 0. */
/* clang-format off */
#define CALLS(X) \
	X(uw_bridge_job_payload, !uw_bridge_job_payload(held, NULL)) \
	X(uw_bridge_job_id, !uw_bridge_job_id(held)) \
	X(uw_bridge_job_handler, strcmp(uw_bridge_job_handler(held), "hold")) \
	X(uw_bridge_job_key, uw_bridge_job_key(held) != NULL) \
	X(uw_bridge_job_stream, strcmp(uw_bridge_job_stream(held), "of-the-parent")) \
	X(uw_bridge_job_attempt, uw_bridge_job_attempt(held) != 1) \
	X(uw_bridge_job_last_error, uw_bridge_job_last_error(held) != NULL) \
	X(uw_bridge_job_is_abandoned, uw_bridge_job_is_abandoned(held)) \
	X(uw_bridge_job_set_result, uw_bridge_job_set_result(held, "x", 1)) \
	X(uw_bridge_job_set_error, uw_bridge_job_set_error(held, "x")) \
	X(uw_bridge_job_add_effect, uw_bridge_job_add_effect(held, &word, 1)) \
	X(uw_bridge_start, start_another()) \
	X(uw_bridge_consumer, strncmp(uw_bridge_consumer(bridge), "uwork:", 6)) \
	X(uw_bridge_get_counters, is_refused(uw_bridge_get_counters(bridge, &read_counters))) \
	X(uw_bridge_stop, is_refused(uw_bridge_stop(bridge, LONG_NS, &read_counters))) \
	X(uw_bridge_producer_create, create_another()) \
	X(uw_bridge_producer_destroy, destroy()) \
	X(uw_bridge_push, push_one(producer, "done")) \
	X(uw_bridge_dead_create, create_letters()) \
	X(uw_bridge_dead_destroy, destroy_letters()) \
	X(uw_bridge_dead_next, uw_bridge_dead_next(letters) || errno) \
	X(uw_bridge_dead_get, uw_bridge_dead_get(letters, "7-0") || errno != ENOENT) \
	X(uw_bridge_dead_replay, replay_often()) \
	X(uw_bridge_dead_drop, uw_bridge_dead_drop(letters, "7-0", NULL) != -ENOENT)
/* clang-format on */

#define DEFINE(name, expression) \
	static int call_##name(void) \
	{ \
		return expression; \
	}
CALLS(DEFINE)

static const struct {
	const char *name;
	int (*call)(void);
} CASES[] = {
#define ENTRY(name, expression) { #name, call_##name },
	CALLS(ENTRY)
};

static void was_cancelled(void *name)
{
	fprintf(stderr, "%s is a cancellation point\n", (const char *)name);
	_exit(3);
}

static void in_child(size_t number)
{
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	close(gate[1]);
	CHECK(pthread_cancel(pthread_self()) == 0);
	pthread_cleanup_push(was_cancelled, (void *)(uintptr_t)CASES[number].name);
	CHECK(CASES[number].call() == 0);
	pthread_cleanup_pop(0);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
	/* The child has a bridge of its own, whatever its first call was. */
	CHECK(start_another() == 0);
	_exit(0);
}

int main(int argc, char **argv)
{
	static const struct uw_bridge_handler handlers[] = { { "hold", hold, NULL }, { "done", done, NULL } };
	const char *stream = "of-the-parent";
	struct uw_bridge_counters counters;
	size_t i, failed = 0;
	int status;

	CHECK(argc > 1 && pipe(gate) == 0);
	server = argv[1];
	config.servers = &server, config.server_count = 1;
	config.streams = &stream, config.stream_count = 1;
	config.patience = 100;
	/* No other consumer takes over what is held here. */
	config.heartbeat_ns = LONG_NS;
	config.max_active = 4;
	bridge = uw_bridge_start(&config, handlers, 2, report, NULL);
	producer = uw_bridge_producer_create(&config);
	CHECK(bridge && producer && push_one(producer, "hold") == 0);
	/* It is connected. */
	letters = uw_bridge_dead_create(&config);
	CHECK(letters && !uw_bridge_dead_next(letters) && errno == 0);
	while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE))
		sched_yield();
	for (i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
		pid_t pid, got;

		fprintf(stderr, "%s\n", CASES[i].name);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			in_child(i);
		while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
			CHECK(!uw_bridge_dead_next(letters) && errno == 0);
			sched_yield();
		}
		CHECK(got == pid);
		if (status != 0) {
			fprintf(stderr, "%s: FAILED: status %#x\n", CASES[i].name, (unsigned)status);
			failed++;
		}
		CHECK(push_one(producer, "done") == 0);
	}
	uw_bridge_dead_destroy(letters);
	CHECK(close(gate[1]) == 0);
	/* Those of the parent, those of the two children that pushed to its stream, and the one that was held. */
	do {
		CHECK(uw_bridge_get_counters(bridge, &counters) == 0);
		sched_yield();
	} while (counters.done < i + 3);
	CHECK(uw_bridge_stop(bridge, LONG_NS, &counters) == 0);
	uw_bridge_producer_destroy(producer);
	CHECK(counters.done == i + 3 && counters.retries == 0 && counters.duplicates == 0 && counters.faults == 0);
	CHECK(failed == 0 && faults == 0);
	printf("%zu functions: ok\n", i);
	return 0;
}
