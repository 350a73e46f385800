/*
 * A consumer with a handler in C, and a producer. Build it:
 * cc bridge.c $(pkg-config --cflags --libs uwork-bridge)
 *
 * Arguments: the server's address, and numbers to square. Without numbers it only consumes, until
 * SIGINT or SIGTERM.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uwork-bridge.h>

#define STOP_LIMIT_NS (10ULL * 1000 * 1000 * 1000)

/* Squares the number in the payload. A payload that is no number becomes a dead letter. */
static int square(struct uw_bridge_job *job, void *arg)
{
	char text[32] = "", result[32], *end;
	size_t length;
	const void *payload = uw_bridge_job_payload(job, &length);
	long number;

	(void)arg;
	if (length < sizeof(text))
		memcpy(text, payload, length);
	number = strtol(text, &end, 10);
	if (end == text || *end) {
		uw_bridge_job_set_error(job, "the payload is not a number");
		return UW_BRIDGE_DEAD;
	}
	snprintf(result, sizeof(result), "%ld", number * number);
	printf("%ld squared is %s\n", number, result);
	fflush(stdout);
	return uw_bridge_job_set_result(job, result, strlen(result)) ? UW_BRIDGE_AGAIN : UW_BRIDGE_DONE;
}

/* Ends the program with the error text. */
static void fail(void)
{
	fprintf(stderr, "%s\n", uw_error_text());
	exit(1);
}

static void push(const struct uw_bridge_config *config, char **numbers, size_t count)
{
	struct uw_bridge_producer *producer = uw_bridge_producer_create(config);

	if (!producer)
		fail();
	for (size_t i = 0; i < count; i++) {
		struct uw_bridge_push job = { .payload = numbers[i], .length = strlen(numbers[i]), .handler = "square" };

		if (uw_bridge_push(producer, &job, 1, NULL))
			fail();
	}
	uw_bridge_producer_destroy(producer);
}

int main(int argc, char **argv)
{
	const char *server = argc > 1 ? argv[1] : "redis://127.0.0.1:6379", *stream = "squares";
	const struct uw_bridge_handler handler = { "square", square, NULL };
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	struct uw_bridge_counters counters;
	uint64_t jobs = argc > 2 ? (uint64_t)argc - 2 : 0;
	struct uw_bridge *bridge;
	sigset_t signals;
	int signal;

	config.servers = &server;
	config.server_count = 1;
	config.streams = &stream;
	config.stream_count = 1;

	/* Before the first thread, so that all threads leave the signals to sigwait(). */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);

	push(&config, argv + 2, (size_t)jobs);
	bridge = uw_bridge_start(&config, &handler, 1, NULL, NULL);
	if (!bridge)
		fail();
	do {
		/* With numbers: until all have been squared. */
		const struct timespec soon = { .tv_nsec = 10 * 1000 * 1000 };

		signal = jobs ? sigtimedwait(&signals, NULL, &soon) : sigwaitinfo(&signals, NULL);
		uw_bridge_get_counters(bridge, &counters);
	} while (signal < 0 && counters.done + counters.dead < jobs);
	uw_bridge_stop(bridge, STOP_LIMIT_NS, &counters);
	printf("%llu done, %llu dead\n", (unsigned long long)counters.done, (unsigned long long)counters.dead);
	return counters.uncommitted ? 1 : 0;
}
