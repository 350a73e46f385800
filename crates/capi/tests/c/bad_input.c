// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Misuse: each call returns an error or, with UWORK_DEBUG=objects, ends the process with a message.
 * The first argument selects the case. Without an argument the program prints the table of cases
 * and expected messages, which tests/run.sh reads.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

static const uint64_t HOUR = 3600ull * 1000 * 1000 * 1000;
static struct uw_queue *queue;

static atomic_int ticks;

static void tick(struct uw_work *work)
{
	(void)work;
	atomic_fetch_add(&ticks, 1);
}

static void null_queue(void)
{
	static struct uw_work work = UW_WORK_INIT(tick);

	CHECK(uw_queue_work(NULL, &work) == -EINVAL);
	CHECK(uw_queue_flush(NULL) == -EINVAL && uw_queue_destroy(NULL) == -EINVAL);
	CHECK(uw_queue_dump(NULL) == NULL && errno == EINVAL);
}

static void null_item(void)
{
	CHECK(uw_queue_work(queue, NULL) == -EINVAL);
	CHECK(uw_work_cancel_sync(NULL) == -EINVAL && uw_queue_delayed_work(queue, NULL, 0) == -EINVAL);
}

static void uninitialised(void)
{
	struct {
		struct uw_work work;
		struct uw_delayed_work delayed;
		struct uw_rcu_work rcu;
	} item;

	memset(&item, 0, sizeof(item));
	CHECK(uw_queue_work(queue, &item.work) == -EINVAL);
	CHECK(uw_queue_delayed_work(queue, &item.delayed, 0) == -EINVAL);
	CHECK(uw_queue_rcu_work(queue, &item.rcu) == -EINVAL);
	CHECK(uw_work_cancel(&item.work) == -EINVAL && uw_work_flush(&item.work) == -EINVAL);
	memset(&item, 0xa5, sizeof(item));
	CHECK(uw_queue_work(queue, &item.work) == -EINVAL);
}

/* An item with a plausible function address, and one with a plausible pattern of a copy. */
static void plausible(void)
{
	struct uw_work item;

	memset(&item, 0xa5, sizeof(item));
	item.func = tick;
	uw_queue_work(queue, &item);
}

static void no_function(void)
{
	struct uw_delayed_work item;

	uw_delayed_work_init(&item, NULL, 0, 0);
	CHECK(uw_queue_work(queue, &item.work) == -EINVAL && uw_queue_delayed_work(queue, &item, 0) == -EINVAL);
	uw_work_init(&item.work, NULL);
	CHECK(uw_queue_work(queue, &item.work) == -EINVAL && uw_queue_flush(queue) == 0 && uw_panics() == 0);
}

static void null_task(void)
{
	static struct uw_task_work item;

	CHECK(uw_task_work_add(NULL, &item, UW_NOTIFY_NONE) == -EINVAL);
	CHECK(uw_task_get(NULL) == NULL && errno == EINVAL);
}

static void uninitialised_task_work(void)
{
	static struct uw_task_work item;
	struct uw_task *task = uw_task_current();

	CHECK(uw_task_work_add(task, &item, UW_NOTIFY_NONE) == -EINVAL);
	CHECK(uw_task_work_cancel(task, &item) == -EINVAL && uw_task_work_is_pending(&item) == -EINVAL);
	uw_task_put(task);
}

static void bad_cpu(void)
{
	static struct uw_delayed_work item = UW_DELAYED_WORK_INIT(tick);

	CHECK(uw_queue_work_on(queue, 100000, &item.work) == -EINVAL);
	CHECK(uw_queue_delayed_work_on(queue, 100000, &item, 0) == -EINVAL);
	CHECK(uw_work_is_pending(&item.work) == 0);
	CHECK(uw_queue_work_on(queue, -1, &item.work) == -EINVAL);
}

static void negative_delay(void)
{
	static struct uw_delayed_work item = UW_DELAYED_WORK_INIT(tick);
	const uint64_t negative = (uint64_t)-10000000;

	CHECK(uw_queue_delayed_work(queue, &item, negative) == -EINVAL);
	CHECK(strstr(uw_error_text(), "delay_ns is 18446744073699551616, or negative as -10000000; allowed are 0"));
	CHECK(uw_mod_delayed_work(queue, &item, UINT64_MAX) == -EINVAL && uw_work_is_pending(&item.work) == 0);
	CHECK(uw_queue_delayed_work_on(queue, 0, &item, (uint64_t)INT64_MAX + 1) == -EINVAL);
	/* The longest delay never passes, and a cancel ends it. */
	CHECK(uw_queue_delayed_work(queue, &item, INT64_MAX) == 1 && uw_work_cancel(&item.work) == 1);
}

static void negative_slack(void)
{
	struct uw_delayed_work item;

	CHECK(uw_queue_set_timer_slack(queue, (uint64_t)-1) == -EINVAL && uw_queue_timer_slack(queue) == 0);
	CHECK(strstr(uw_error_text(), "slack_ns") && uw_queue_timer_slack(NULL) == -EINVAL);
	uw_delayed_work_init(&item, tick, 0, (uint64_t)-1);
	CHECK(uw_queue_delayed_work(queue, &item, 1000) == 1 && uw_delayed_work_flush(&item) >= 0);
}

static void destroyed(void)
{
	static struct uw_work work = UW_WORK_INIT(tick);

	CHECK(uw_queue_destroy(queue) == 0);
	CHECK(uw_queue_work(queue, &work) == -ESHUTDOWN);
	CHECK(uw_queue_destroy(queue) == -ESHUTDOWN);
}

static void system_queue(void)
{
	CHECK(uw_queue_destroy(uw_system_queue(UW_SYSTEM_DFL)) == -EPERM);
}

static void enabled_twice(void)
{
	static struct uw_work work = UW_WORK_INIT(tick);

	CHECK(uw_work_enable(&work) == -EINVAL);
}

static void unlocked_twice(void)
{
	CHECK(uw_rcu_read_unlock() == -EINVAL);
}

struct big {
	char before[256];
	struct uw_delayed_work delayed;
	char after[256];
};

static struct big *armed(uint64_t delay_ns)
{
	struct big *big = malloc(sizeof(*big));

	CHECK(big);
	uw_delayed_work_init(&big->delayed, tick, 0, 0);
	CHECK(uw_queue_delayed_work(queue, &big->delayed, delay_ns) == 1);
	return big;
}

/* Without the debug mode these are undefined behaviour, so they run in that mode only. */
static void freed_while_armed(void)
{
	/* An item that runs before it is freed is no mistake: then the next delay is twice as long. */
	for (uint64_t delay_ns = 1000 * 1000;; delay_ns *= 2) {
		int before = atomic_load(&ticks);

		free(armed(delay_ns));
		while (atomic_load(&ticks) == before)
			usleep(1000);
	}
}

static void freed_until_the_end(void)
{
	free(armed(HOUR));
}

static void freed_by_an_allocator(void)
{
	struct big *big = armed(HOUR);

	uw_debug_check_freed(big, sizeof(*big));
}

static void overwritten(void)
{
	struct big *big = armed(HOUR);

	memset(big, 0, sizeof(*big));
	uw_work_cancel(&big->delayed.work);
}

static void initialised_again(void)
{
	struct big *big = armed(HOUR);

	uw_delayed_work_init(&big->delayed, tick, 0, 0);
}

static void copied(void)
{
	struct big *big = armed(HOUR), copy = *big;

	uw_work_cancel(&copy.delayed.work);
}

static void percpu_null(void)
{
	CHECK(uw_percpu_lock_local(NULL) == NULL && errno == EINVAL);
	CHECK(uw_percpu_destroy(NULL) == -EINVAL && uw_percpu_cpus(NULL) == -EINVAL);
	CHECK(uw_percpu_cache_alloc(NULL) == NULL && errno == EINVAL);
	CHECK(uw_percpu_cache_create(NULL, 8, 0) == NULL && errno == EINVAL);
	CHECK(uw_percpu_batch_drain_all(NULL) == -EINVAL && uw_percpu_counter_sum(NULL) == 0);
}

static void percpu_unlocked_twice(void)
{
	struct uw_percpu *percpu = uw_percpu_create(8);
	char *block = uw_percpu_lock_local(percpu);

	CHECK(block && uw_percpu_unlock(percpu, block) == 0);
	CHECK(uw_percpu_unlock(percpu, block) == -EPERM);
	CHECK(uw_percpu_unlock(percpu, block + 1) == -EINVAL && uw_percpu_unlock(percpu, &percpu) == -EINVAL);
	CHECK(uw_percpu_destroy(percpu) == 0);
}

static void percpu_bad_item(void)
{
	static struct uw_percpu_work item;

	CHECK(uw_percpu_queue_on(queue, 0, NULL) == -EINVAL && uw_percpu_queue_on(queue, 0, &item) == -EINVAL);
	uw_percpu_work_init(&item, tick, 0);
	CHECK(uw_percpu_queue_on(queue, 1, &item) == -EINVAL && uw_percpu_queue_on(NULL, 0, &item) == -EINVAL);
	CHECK(uw_percpu_flush(NULL) == -EINVAL);
}

static const struct {
	const char *name;
	void (*function)(void);
	/* Runs with the debug mode only. */
	bool only_debug;
	/* The expected message. */
	const char *words;
} cases[] = {
	{ "null_queue", null_queue, false, "the queue is NULL" },
	{ "null_item", null_item, false, "the item is NULL" },
	{ "uninitialised", uninitialised, false, "was never initialised" },
	{ "plausible", plausible, true, "was never initialised" },
	{ "no_function", no_function, false, "function is NULL" },
	{ "null_task", null_task, false, "the task is NULL" },
	{ "uninitialised_task_work", uninitialised_task_work, false, "uw_task_work_init makes it" },
	{ "bad_cpu", bad_cpu, false, "is no CPU" },
	{ "negative_delay", negative_delay, false, "delay_ns is" },
	{ "negative_slack", negative_slack, false, "slack_ns is" },
	{ "destroyed", destroyed, false, "was destroyed" },
	{ "system_queue", system_queue, false, "system queue" },
	{ "enabled_twice", enabled_twice, false, "no disable left" },
	{ "unlocked_twice", unlocked_twice, false, "uw_rcu_read_unlock" },
	{ "percpu_null", percpu_null, false, "the handle is NULL" },
	{ "percpu_unlocked_twice", percpu_unlocked_twice, false, "does not hold the lock" },
	{ "percpu_bad_item", percpu_bad_item, false, "the item is NULL" },
	{ "freed_while_armed", freed_while_armed, true, "function tick" },
	{ "freed_until_the_end", freed_until_the_end, true, "function tick" },
	{ "freed_by_an_allocator", freed_by_an_allocator, true, "is freed while it is queued" },
	{ "overwritten", overwritten, true, "freed or overwritten while it was queued" },
	{ "initialised_again", initialised_again, true, "initialised again while it is queued" },
	{ "copied", copied, true, "is a copy of another one" },
};

int main(int argc, char **argv)
{
	size_t index;

	for (index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
		if (argc < 2)
			printf("%s|%d|%s\n", cases[index].name, cases[index].only_debug, cases[index].words);
		else if (strcmp(argv[1], cases[index].name) == 0) {
			queue = uw_queue_create("bad-input", 0, 0);
			CHECK(queue);
			cases[index].function();
			return 0;
		}
	}
	return argc < 2 ? 0 : 2;
}
