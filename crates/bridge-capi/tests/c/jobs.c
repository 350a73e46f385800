/* Handlers in C: each outcome, each member of a job, and bad input. Argument: the server's address. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <uwork-bridge.h>

#include "check.h"

#define LONG_NS (60ULL * 1000 * 1000 * 1000)
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

static void refusals(const char *server)
{
	const char *stream = "jobs", *bad = "http://x";
	struct uw_bridge_handler handler = { "sum", sum, NULL };
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;

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
	/* Port 1 has no listener. A producer connects at its first push. */
	const char *server = "redis://127.0.0.1:1", *stream = "jobs";
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	struct uw_bridge_producer *producer;
	struct uw_bridge_push job = { .payload = "x", .length = 1 };

	config.servers = &server, config.server_count = 1;
	config.streams = &stream, config.stream_count = 1;
	producer = uw_bridge_producer_create(&config);
	CHECK(producer);
	CHECK(uw_bridge_push(producer, &job, 1, NULL) == -EHOSTUNREACH);
	CHECK(strstr(uw_error_text(), "127.0.0.1:1"));
	uw_bridge_producer_destroy(producer);
}

int main(int argc, char **argv)
{
	const char *server = argc > 1 ? argv[1] : NULL, *stream = "jobs";
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	struct uw_bridge_counters counters;
	int runs = 0, outcomes[5];
	struct uw_bridge_handler handlers[] = {
		{ "sum", sum, &runs }, { "refuse", refuse, NULL }, { "hang", hang, NULL }, { NULL, other, &runs },
	};
	struct uw_bridge_push jobs[] = {
		{ .payload = "2\0003", .length = 3, .handler = "sum", .id = "id7", .key = "k" },
		{ .handler = "sum", .id = "id7", .key = "k" },
		{ .handler = "refuse", .delay_ns = MS_NS },
		{ .payload = "x", .length = 1 },
		{ .handler = "hang" },
	};
	struct uw_bridge_producer *producer;
	struct uw_bridge *bridge;

	CHECK(server);
	refusals(server);
	unreachable();
	config.servers = &server, config.server_count = 1;
	config.streams = &stream, config.stream_count = 1;
	producer = uw_bridge_producer_create(&config);
	CHECK(producer);
	CHECK(uw_bridge_push(producer, jobs, 5, outcomes) == 0);
	CHECK(outcomes[0] == UW_BRIDGE_ADDED && outcomes[1] == UW_BRIDGE_DUPLICATE);
	CHECK(outcomes[2] == UW_BRIDGE_DELAYED && outcomes[3] == UW_BRIDGE_ADDED);
	uw_bridge_producer_destroy(producer);

	config.attempts_max = 2;
	config.retry_first_ns = MS_NS;
	config.limit_ns = 50 * MS_NS;
	config.result_key_ns = LONG_NS;
	bridge = uw_bridge_start(&config, handlers, 4, report, &letters);
	CHECK(bridge);
	CHECK(!strncmp(uw_bridge_consumer(bridge), "uwork:", 6));
	do {
		CHECK(uw_bridge_get_counters(bridge, &counters) == 0);
		sched_yield();
	} while (counters.done + counters.dead < 4);
	CHECK(uw_bridge_stop(bridge, LONG_NS, &counters) == 0);
	CHECK(counters.done == 1 && counters.dead == 3 && counters.retries == 3);
	CHECK(counters.abandoned == 0 && counters.uncommitted == 0 && counters.held == 0);
	CHECK(runs == 2 && letters == 3);
	printf("ok\n");
	return 0;
}
