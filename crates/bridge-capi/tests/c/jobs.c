/* Handlers in C: each outcome, each member of a job, and bad input. Argument: the server's address. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uwork-bridge.h>

#include "check.h"

/* Longer than any wait here takes, on any machine. */
#define LONG_NS (24 * 3600ULL * 1000 * 1000 * 1000)
#define MS_NS (1000ULL * 1000)

static int letters;

static void report(const char *line, void *arg)
{
	CHECK(arg == &letters);
	if (strstr(line, "dead letter"))
		__atomic_fetch_add(&letters, 1, __ATOMIC_RELAXED);
	if (strstr(line, "the handler returned"))
		CHECK(strstr(line, "the handler returned 77; allowed are 0 to 3"));
	if (strstr(line, "not a number"))
		CHECK(strstr(line, "after 1 attempt(s): not a number"));
}

/* The second attempt succeeds, with a result and an effect. */
static int sum(struct uw_bridge_job *job, void *arg)
{
	static const struct uw_bridge_word effect[] = { { "INCRBY", 6 }, { "{jobs}:sum", 10 }, { "5", 1 } };
	size_t length;
	const char *payload = uw_bridge_job_payload(job, &length);

	CHECK(!strcmp(uw_bridge_job_stream(job), "jobs") && !strcmp(uw_bridge_job_handler(job), "sum"));
	CHECK(!strcmp(uw_bridge_job_id(job), "id7") && !strcmp(uw_bridge_job_key(job), "k"));
	CHECK(length == 3 && !memcmp(payload, "2\0003", 3));
	CHECK(!uw_bridge_job_is_abandoned(job));
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_RELAXED);
	if (uw_bridge_job_attempt(job) == 1) {
		CHECK(!uw_bridge_job_last_error(job));
		CHECK(uw_bridge_job_set_error(job, "once more") == 0);
		return UW_BRIDGE_AGAIN;
	}
	CHECK(!strcmp(uw_bridge_job_last_error(job), "once more"));
	CHECK(uw_bridge_job_add_effect(job, NULL, 0) == -EINVAL);
	CHECK(uw_bridge_job_add_effect(job, effect, 3) == 0);
	CHECK(uw_bridge_job_add_effect(job, effect, 3) == -EINVAL);
	CHECK(uw_bridge_job_set_result(job, "5", 1) == 0);
	return UW_BRIDGE_DONE;
}

static int refuse(struct uw_bridge_job *job, void *arg)
{
	(void)arg;
	CHECK(!uw_bridge_job_key(job));
	CHECK(uw_bridge_job_set_error(job, "not a number") == 0);
	return UW_BRIDGE_DEAD;
}

/* The handler of all other names. An item of its own runs on the same engine. */
static void *forty_two(void *arg)
{
	return arg;
}

static int other(struct uw_bridge_job *job, void *arg)
{
	void *result = NULL;

	(void)job;
	CHECK(uw_job_join(uw_queue_spawn(uw_system_queue(UW_SYSTEM_DFL), forty_two, arg), &result) == 0);
	CHECK(result == arg);
	return 77;
}

/* Stays until its time limit is over. */
static int hang(struct uw_bridge_job *job, void *arg)
{
	(void)arg;
	while (!uw_bridge_job_is_abandoned(job))
		usleep(1000);
	return UW_BRIDGE_DONE;
}

/* Waits until so many jobs have succeeded or failed for good. */
static void wait_for_outcomes(struct uw_bridge *bridge, unsigned count)
{
	struct uw_bridge_counters counters;

	do {
		CHECK(uw_bridge_get_counters(bridge, &counters) == 0);
		sched_yield();
	} while (counters.done + counters.dead < count);
}

static void refusals(const char *server)
{
	const char *stream = "jobs", *bad = "http://x";
	struct uw_bridge_handler handler = { "sum", sum, NULL };
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	struct uw_bridge_producer *producer;

	CHECK(!uw_bridge_start(&config, &handler, 1, NULL, NULL) && errno == EINVAL);
	CHECK(!strcmp(uw_error_text(), "no stream is given: at least 1 is needed"));
	config.servers = &server, config.server_count = 1;
	config.streams = &stream, config.stream_count = 1;
	CHECK(!uw_bridge_start(&config, NULL, 0, NULL, NULL) && errno == EINVAL);
	CHECK(strstr(uw_error_text(), "there is no handler"));
	CHECK(!uw_bridge_start(&config, NULL, 1, NULL, NULL) && errno == EINVAL);
	CHECK(!uw_bridge_start(NULL, &handler, 1, NULL, NULL) && errno == EINVAL);
	config.max_active = 5000;
	CHECK(!uw_bridge_start(&config, &handler, 1, NULL, NULL) && errno == EINVAL);
	CHECK(!strcmp(uw_error_text(), "max_active 5000: allowed are 1 to 2048"));
	config.max_active = (unsigned)-1;
	CHECK(!uw_bridge_start(&config, &handler, 1, NULL, NULL) && errno == EINVAL);
	CHECK(!strcmp(uw_error_text(), "max_active -1: allowed are 1 to 2048"));
	config.max_active = 0;
	config.result_key_ns = config.result_stream_max = 1;
	CHECK(!uw_bridge_start(&config, &handler, 1, NULL, NULL) && errno == EINVAL);
	config.result_key_ns = config.result_stream_max = 0;
	config.ca_file = "/no/such/file";
	CHECK(!uw_bridge_start(&config, &handler, 1, NULL, NULL) && errno == EINVAL);
	CHECK(strstr(uw_error_text(), "/no/such/file"));
	config.ca_file = NULL;
	config.size--;
	CHECK(!uw_bridge_producer_create(&config) && errno == EINVAL);
	CHECK(strstr(uw_error_text(), "UW_BRIDGE_CONFIG_INIT"));
	config.size++;
	/* A program that was compiled before the structure had its last member. */
	config.size = offsetof(struct uw_bridge_config, patience);
	config.patience = ~0u;
	producer = uw_bridge_producer_create(&config);
	CHECK(producer);
	uw_bridge_producer_destroy(producer);
	config.size = sizeof(config);
	config.patience = 0;
	config.servers = &bad;
	CHECK(!uw_bridge_producer_create(&config) && errno == EINVAL && strstr(uw_error_text(), "redis://"));
	handler.func = NULL;
	config.servers = &server;
	CHECK(!uw_bridge_start(&config, &handler, 1, NULL, NULL) && errno == EINVAL);
	CHECK(uw_bridge_stop(NULL, 0, NULL) == -EINVAL && uw_bridge_get_counters(NULL, NULL) == -EINVAL);
	CHECK(uw_bridge_push(NULL, NULL, 0, NULL) == -EINVAL);
	uw_bridge_producer_destroy(NULL);
	CHECK(uw_bridge_job_attempt(NULL) == 0 && !uw_bridge_job_id(NULL));
}

static void unreachable(void)
{
	/* A port that belongs to this socket, which does not listen. A producer connects at its first push. */
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	char text[64];
	const char *server = text, *stream = "jobs";
	int owner = socket(AF_INET, SOCK_STREAM, 0);
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	struct uw_bridge_producer *producer;
	struct uw_bridge_push job = { .payload = "x", .length = 1 };

	CHECK(owner >= 0 && bind(owner, (struct sockaddr *)&address, length) == 0);
	CHECK(getsockname(owner, (struct sockaddr *)&address, &length) == 0);
	snprintf(text, sizeof(text), "redis://127.0.0.1:%d", ntohs(address.sin_port));
	config.servers = &server, config.server_count = 1;
	config.streams = &stream, config.stream_count = 1;
	producer = uw_bridge_producer_create(&config);
	CHECK(producer);
	CHECK(uw_bridge_push(producer, &job, 1, NULL) == -EHOSTUNREACH);
	CHECK(strstr(uw_error_text(), text + strlen("redis://")));
	uw_bridge_producer_destroy(producer);
	close(owner);
}

/* A job that exceeds the time limit counts as failed. The limit is that of all handlers, so this bridge has one handler. */
static void time_limit(const char *server)
{
	const char *stream = "hanging";
	struct uw_bridge_handler handler = { "hang", hang, NULL };
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	struct uw_bridge_push job = { .handler = "hang" };
	struct uw_bridge_producer *producer;
	struct uw_bridge_counters counters;
	struct uw_bridge *bridge;

	config.servers = &server, config.server_count = 1;
	config.streams = &stream, config.stream_count = 1;
	producer = uw_bridge_producer_create(&config);
	CHECK(producer && uw_bridge_push(producer, &job, 1, NULL) == 0);
	uw_bridge_producer_destroy(producer);
	config.attempts_max = 2;
	config.retry_first_ns = MS_NS;
	config.limit_ns = 50 * MS_NS;
	bridge = uw_bridge_start(&config, &handler, 1, report, &letters);
	CHECK(bridge);
	wait_for_outcomes(bridge, 1);
	CHECK(uw_bridge_stop(bridge, LONG_NS, &counters) == 0);
	CHECK(counters.done == 0 && counters.dead == 1 && counters.retries == 1);
	CHECK(counters.abandoned == 0 && counters.uncommitted == 0 && counters.held == 0);
}

/* Hands its job back twice, and the third run has the first attempt still. */
static int not_now(struct uw_bridge_job *job, void *arg)
{
	CHECK(uw_bridge_job_attempt(job) == 1 && !uw_bridge_job_last_error(job));
	if (__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED) > 2)
		return UW_BRIDGE_DONE;
	CHECK(uw_bridge_job_set_error(job, "the database does not answer") == 0);
	return UW_BRIDGE_NOT_NOW;
}

static void says_that_it_pauses(const char *line, void *arg)
{
	if (strstr(line, "the database does not answer; no job is fetched until one can run"))
		__atomic_fetch_add((int *)arg, 1, __ATOMIC_RELAXED);
}

static void hand_back(const char *server)
{
	const char *stream = "paused";
	int runs = 0, lines = 0;
	struct uw_bridge_handler handler = { NULL, not_now, &runs };
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	struct uw_bridge_push job = { .payload = "x", .length = 1 };
	struct uw_bridge_producer *producer;
	struct uw_bridge_counters counters;
	struct uw_bridge *bridge;

	config.servers = &server, config.server_count = 1;
	config.streams = &stream, config.stream_count = 1;
	config.patience = 100;
	config.attempts_max = 1;
	producer = uw_bridge_producer_create(&config);
	CHECK(producer && uw_bridge_push(producer, &job, 1, NULL) == 0);
	uw_bridge_producer_destroy(producer);
	bridge = uw_bridge_start(&config, &handler, 1, says_that_it_pauses, &lines);
	CHECK(bridge);
	wait_for_outcomes(bridge, 1);
	CHECK(uw_bridge_stop(bridge, LONG_NS, &counters) == 0);
	CHECK(counters.done == 1 && counters.dead == 0 && counters.retries == 0);
	CHECK(runs == 3 && lines == 1);
}

/* Those of main(): "not a number", and that of the handler which returned 77. Another stream has none. */
static void dead_letters(const char *server)
{
	const char *streams[] = { "other", "jobs" };
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	const struct uw_bridge_letter *letter;
	struct uw_bridge_settled counts;
	struct uw_bridge_dead *dead;
	char first[64], named[128];
	int round;

	CHECK(!uw_bridge_dead_create(NULL) && errno == EINVAL);
	CHECK(!uw_bridge_dead_next(NULL) && errno == EINVAL && !uw_bridge_dead_get(NULL, "1-0") && errno == EINVAL);
	CHECK(uw_bridge_dead_replay(NULL, NULL, NULL) == -EINVAL && uw_bridge_dead_drop(NULL, NULL, NULL) == -EINVAL);
	uw_bridge_dead_destroy(NULL);
	config.servers = &server, config.server_count = 1;
	config.streams = streams, config.stream_count = 2;
	config.patience = 100;
	dead = uw_bridge_dead_create(&config);
	CHECK(dead);
	for (round = 0; round < 2; round++) {
		int refused = 0, strange = 0;

		while ((letter = uw_bridge_dead_next(dead))) {
			CHECK(!strcmp(letter->stream, "jobs") && letter->entry && !letter->id && !letter->group);
			snprintf(first, sizeof(first), "%s", letter->number);
			refused += letter->attempts == 1 && !strcmp(letter->error, "not a number") &&
				   !strcmp(letter->handler, "refuse") && letter->payload_bytes == 0;
			strange += letter->attempts == 2 && strstr(letter->error, "the handler returned 77") &&
				   !letter->handler && letter->length == 1 && !memcmp(letter->payload, "x", 1);
		}
		CHECK(errno == 0 && refused == 1 && strange == 1);
	}
	snprintf(named, sizeof(named), "jobs/%s", first);
	letter = uw_bridge_dead_get(dead, named);
	CHECK(letter && errno == 0 && !strcmp(letter->number, first) && letter->length == letter->payload_bytes);
	CHECK(!uw_bridge_dead_get(dead, "7-0") && errno == ENOENT);
	CHECK(!strcmp(uw_error_text(), "there is no dead letter 7-0"));
	CHECK(!uw_bridge_dead_get(dead, "seven") && errno == EINVAL);
	CHECK(!uw_bridge_dead_get(dead, NULL) && errno == EINVAL);
	CHECK(uw_bridge_dead_replay(dead, first, &counts) == 0 && counts.settled == 1 && counts.left == 0);
	memset(&counts, 0xff, sizeof(counts));
	CHECK(uw_bridge_dead_replay(dead, first, &counts) == -ENOENT && counts.settled == 0 && counts.left == 0);
	CHECK(uw_bridge_dead_replay(dead, first, NULL) == -ENOENT);
	CHECK(uw_bridge_dead_drop(dead, named, NULL) == -ENOENT);
	CHECK(uw_bridge_dead_drop(dead, NULL, &counts) == 0 && counts.settled == 1 && counts.left == 0);
	CHECK(uw_bridge_dead_replay(dead, NULL, &counts) == 0 && counts.settled == 0);
	CHECK(!uw_bridge_dead_next(dead) && errno == 0);
	uw_bridge_dead_destroy(dead);
}

int main(int argc, char **argv)
{
	const char *server = argc > 1 ? argv[1] : NULL, *stream = "jobs";
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	struct uw_bridge_counters counters;
	int runs = 0, outcomes[4];
	struct uw_bridge_handler handlers[] = {
		{ "sum", sum, &runs }, { "refuse", refuse, NULL }, { NULL, other, &runs },
	};
	struct uw_bridge_push jobs[] = {
		{ .payload = "2\0003", .length = 3, .handler = "sum", .id = "id7", .key = "k" },
		{ .handler = "sum", .id = "id7", .key = "k" },
		{ .handler = "refuse", .delay_ns = MS_NS },
		{ .payload = "x", .length = 1 },
	};
	struct uw_bridge_producer *producer;
	struct uw_bridge *bridge;

	CHECK(server);
	refusals(server);
	unreachable();
	config.servers = &server, config.server_count = 1;
	config.streams = &stream, config.stream_count = 1;
	/* The test's server has no append-only file. */
	config.strict = true;
	CHECK(!uw_bridge_producer_create(&config) && errno == EPROTO && strstr(uw_error_text(), "append-only"));
	CHECK(!uw_bridge_start(&config, handlers, 3, report, &letters) && errno == EPROTO);
	/* In the structure of 0.2 this byte is padding. */
	config.size = offsetof(struct uw_bridge_config, patience);
	memset((char *)&config + offsetof(struct uw_bridge_config, strict), 0xa5, 1);
	producer = uw_bridge_producer_create(&config);
	CHECK(producer);
	uw_bridge_producer_destroy(producer);
	config.size = sizeof(config);
	memset((char *)&config + offsetof(struct uw_bridge_config, strict), 0, 1);
	producer = uw_bridge_producer_create(&config);
	CHECK(producer);
	CHECK(uw_bridge_push(producer, jobs, 4, outcomes) == 0);
	CHECK(outcomes[0] == UW_BRIDGE_ADDED && outcomes[1] == UW_BRIDGE_DUPLICATE);
	CHECK(outcomes[2] == UW_BRIDGE_DELAYED && outcomes[3] == UW_BRIDGE_ADDED);
	uw_bridge_producer_destroy(producer);

	config.attempts_max = 2;
	config.patience = 100;
	config.retry_first_ns = MS_NS;
	config.result_key_ns = LONG_NS;
	bridge = uw_bridge_start(&config, handlers, 3, report, &letters);
	CHECK(bridge);
	CHECK(!strncmp(uw_bridge_consumer(bridge), "uwork:", 6));
	wait_for_outcomes(bridge, 3);
	CHECK(uw_bridge_stop(bridge, LONG_NS, &counters) == 0);
	CHECK(counters.done == 1 && counters.dead == 2 && counters.retries == 2);
	CHECK(counters.abandoned == 0 && counters.uncommitted == 0 && counters.held == 0);
	CHECK(runs == 2);
	dead_letters(server);
	hand_back(server);
	time_limit(server);
	CHECK(letters == 3);
	printf("ok\n");
	return 0;
}
