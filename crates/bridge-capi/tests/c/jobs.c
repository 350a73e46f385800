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
		CHECK(strstr(line, "the handler returned 77; allowed are 0 to 2"));
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
	config.strict = false;
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
	time_limit(server);
	CHECK(letters == 3);
	printf("ok\n");
	return 0;
}
