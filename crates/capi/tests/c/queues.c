// SPDX-License-Identifier: MIT OR Apache-2.0
/* Queues: attributes, the attribute tree, dumps. */
#include <errno.h>

#include "item.h"

static void attributes(void)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	unsigned long mask[16] = { 0 };
	const size_t bits = 8 * sizeof(long), cpu = (size_t)first_cpu();
	struct uw_queue *queue, *other;
	char text[64], *list;

	mask[cpu / bits] = 1ul << cpu % bits;
	attrs.flags = UW_UNBOUND | UW_SYSFS;
	attrs.max_active = 7;
	attrs.nice = 5;
	attrs.scope = UW_SCOPE_NUMA;
	attrs.strict = true;
	attrs.cpumask = mask;
	attrs.cpumask_bytes = sizeof(mask);
	queue = uw_queue_create_attrs("tuned", &attrs);
	CHECK(queue);
	CHECK(uw_queue_create("tuned", 0, 0) == NULL && errno == EEXIST);
	other = uw_queue_create("tuned", UW_UNBOUND | UW_NUMBERED, 0);
	CHECK(other && uw_queue_name(other, text, sizeof(text)) == 7 && strcmp(text, "tuned#2") == 0);
	CHECK((uw_queue_flags(other) & (int)UW_NUMBERED) == 0 && uw_queue_destroy(other) == 0);
	CHECK(uw_queue_name(queue, text, sizeof(text)) == 5 && strcmp(text, "tuned") == 0);
	CHECK(uw_queue_name(queue, text, 3) == 5 && strcmp(text, "tu") == 0);
	CHECK(uw_queue_flags(queue) == (UW_UNBOUND | UW_SYSFS));
	CHECK(uw_queue_max_active(queue) == 7);
	CHECK(uw_queue_set_max_active(queue, 9) == 0 && uw_queue_max_active(queue) == 9);
	CHECK(uw_queue_set_max_active(queue, 5000) == -EINVAL && strstr(uw_error_text(), "2048"));
	/* A negative number is reported as it was written. */
	CHECK(uw_queue_set_max_active(queue, (unsigned)-1) == -EINVAL && strstr(uw_error_text(), "max_active -1 is"));
	CHECK(!uw_queue_create("negative", 0, (unsigned)-5) && errno == EINVAL && strstr(uw_error_text(), "max_active -5 is"));
	CHECK(!uw_queue_create("negative", UW_BH, 1u << 31) && strstr(uw_error_text(), "max_active -2147483648 is"));
	CHECK(uw_queue_set_scope(queue, (unsigned)-1) == -EINVAL && strstr(uw_error_text(), "-1 is no affinity scope"));
	CHECK(uw_queue_max_active(queue) == 9);
	CHECK(uw_queue_set_min_active(queue, 2) == 0 && uw_queue_min_active(queue) == 2);
	CHECK(uw_queue_scope(queue, text, sizeof(text)) > 0 && strcmp(text, "numa") == 0);
	CHECK(uw_queue_set_scope(queue, UW_SCOPE_SYSTEM) == 0);
	CHECK(uw_queue_scope(queue, text, sizeof(text)) > 0 && strcmp(text, "system") == 0);
	CHECK(uw_queue_set_scope(queue, 99) == -EINVAL);
	CHECK(uw_queue_set_strict(queue, false) == 0);
	CHECK(uw_queue_set_nice(queue, 6) == 0 && uw_queue_set_nice(queue, 40) == -EINVAL);
	CHECK(uw_queue_timer_slack(queue) == 0 && uw_queue_set_timer_slack(queue, 50000) == 0);
	CHECK(uw_queue_timer_slack(queue) == 50000 && uw_queue_set_timer_slack(queue, INT64_MAX) == 0);
	CHECK(uw_queue_timer_slack(queue) == INT64_MAX);
	mask[cpu / bits] = 0;
	CHECK(uw_queue_cpumask(queue, mask, sizeof(mask)) == (int)cpu + 1 && mask[cpu / bits] == 1ul << cpu % bits);
	CHECK(uw_queue_set_cpumask(queue, mask, sizeof(mask)) == 0);
	CHECK(uw_queue_set_cpumask(queue, mask, 3) == -EINVAL);
	CHECK(uw_queue_is_congested(queue) == 0 && uw_queue_is_congested_on(queue, (int)cpu) == 0);
	CHECK(uw_queue_check_cpu(queue, (int)cpu) == 0 && uw_queue_check_cpu(queue, 4000) == -EINVAL);

	CHECK(uw_sysfs_set("devices/tuned/max_active", "11\n") == 0 && uw_queue_max_active(queue) == 11);
	CHECK(uw_sysfs_get("devices/tuned/max_active", text, sizeof(text)) == 2 && strcmp(text, "11") == 0);
	CHECK(uw_sysfs_set("devices/tuned/max_active", "many") == -EINVAL);
	CHECK(uw_sysfs_get("devices/nobody/max_active", text, sizeof(text)) == -ENOENT);
	CHECK(uw_sysfs_set("devices/tuned/per_cpu", "1") == -EACCES);
	CHECK(uw_sysfs_get("devices", text, sizeof(text)) == -EISDIR);
	CHECK(uw_sysfs_list("devices/tuned", &list) == 0 && strstr(list, "affinity_scope\n"));
	uw_string_free(list);
	CHECK(uw_sysfs_list("", &list) == 0 && strstr(list, "devices/\n"));
	uw_string_free(list);

	list = uw_dump();
	CHECK(list && strstr(list, "tuned"));
	uw_string_free(list);
	list = uw_queue_dump(queue);
	CHECK(list && strstr(list, "tuned"));
	uw_string_free(list);
	list = uw_dump_queues(UW_FREEZABLE);
	CHECK(list && !strstr(list, "tuned"));
	uw_string_free(list);
	CHECK(uw_queue_destroy(queue) == 0);
}

/* Waits until so many runs of the queue are counted: a batch is counted a moment after the flush returns. */
static void counted(uint64_t expected)
{
	struct uw_counters *counters;
	uint64_t ran = 0, waits = 0, functions = 0;

	while (ran < expected || waits < expected || !functions) {
		counters = uw_counters();
		CHECK(counters && counters->nr_queues > 0 && counters->workers > 0);
		for (size_t i = 0; i < counters->nr_queues; i++) {
			if (strcmp(counters->queues[i]->name, "counted") != 0)
				continue;
			ran = counters->queues[i]->ran;
			waits = counters->queues[i]->waits.count;
			CHECK(counters->queues[i]->run_times.count == ran && counters->queues[i]->max_active > 0);
		}
		functions = counters->nr_functions;
		if (functions)
			CHECK(counters->functions[0]->run_times.count > 0 && strlen(counters->functions[0]->name) > 0);
		uw_counters_free(counters);
	}
	CHECK(ran == expected && waits == expected);
}

static void counters(void)
{
	struct uw_queue *queue = uw_queue_create("counted", UW_UNBOUND, 0);
	struct item item;
	char *text;

	CHECK(queue);
	init(&item);
	CHECK(uw_queue_work(queue, &item.work) == 1 && uw_queue_flush(queue) == 0);
	counted(1);
	uw_counters_free(NULL);
	text = uw_metrics();
	CHECK(text && strstr(text, "uwork_items_started_total{queue=\"counted\"} 1\n"));
	uw_string_free(text);
	CHECK(uw_sysfs_get("devices/counted/max_active", NULL, 0) == -ENOENT);
	CHECK(strstr(uw_error_text(), "the flag SYSFS"));
	/* Other pools: the counters go with the queue. */
	CHECK(uw_queue_set_scope(queue, UW_SCOPE_SYSTEM) == 0 && uw_queue_set_nice(queue, 5) == 0);
	CHECK(uw_queue_work(queue, &item.work) == 1 && uw_queue_flush(queue) == 0);
	counted(2);
	CHECK(uw_queue_destroy(queue) == 0);
}

/* Pauses the queue in its own item. */
struct pauser {
	struct uw_work work;
	struct uw_queue *queue;
	int answer;
};

static void pause_own(struct uw_work *work)
{
	struct pauser *pauser = UW_CONTAINER_OF(work, struct pauser, work);

	pauser->answer = uw_queue_pause(pauser->queue);
}

static void pauses(void)
{
	struct uw_queue *queue = uw_queue_create("paused", UW_UNBOUND, 0);
	struct uw_queue *other = uw_queue_create("beside", UW_UNBOUND, 0);
	struct pauser pauser = { .queue = queue };
	struct item kept, free;

	CHECK(queue && other);
	CHECK(uw_queue_resume(queue) == -EINVAL && strstr(uw_error_text(), "not paused"));
	CHECK(uw_queue_pause(queue) == 0 && uw_queue_pause_timeout(queue, 0) == 0);
	CHECK(uw_queue_is_paused(queue) == 1 && uw_queue_is_paused(other) == 0);
	init(&kept);
	init(&free);
	CHECK(uw_queue_work(queue, &kept.work) == 1 && uw_queue_work(other, &free.work) == 1);
	CHECK(uw_queue_flush(other) == 0 && atomic_load(&free.runs) == 1);
	CHECK(uw_queue_flush_timeout(queue, 1000) == -ETIMEDOUT);
	CHECK(uw_queue_resume(queue) == 0 && uw_queue_is_paused(queue) == 1);
	CHECK(atomic_load(&kept.runs) == 0);
	CHECK(uw_queue_resume(queue) == 0 && uw_queue_flush(queue) == 0 && atomic_load(&kept.runs) == 1);
	uw_work_init(&pauser.work, pause_own);
	CHECK(uw_queue_work(queue, &pauser.work) == 1 && uw_queue_flush(queue) == 0);
	CHECK(pauser.answer == -EDEADLK && uw_queue_is_paused(queue) == 0);
	/* The end of the queue ends its pause. */
	CHECK(uw_queue_pause(queue) == 0 && uw_queue_work(queue, &kept.work) == 1);
	CHECK(uw_queue_destroy(queue) == 0 && atomic_load(&kept.runs) == 2);
	CHECK(uw_queue_destroy(other) == 0);
}

static void dedicated(void)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	struct uw_queue *queue;
	struct item item;

	attrs.dedicated = true;
	queue = uw_queue_create_attrs("journal", &attrs);
	CHECK(queue && (uw_queue_flags(queue) & (int)UW_ORDERED));
	init(&item);
	CHECK(uw_queue_work(queue, &item.work) == 1 && uw_work_flush(&item.work) >= 0);
	CHECK(atomic_load(&item.runs) == 1);
	CHECK(uw_queue_destroy(queue) == 0);
	attrs.flags = UW_PERCPU;
	CHECK(uw_queue_create_attrs("journal", &attrs) == NULL && errno == EINVAL);
}

int main(void)
{
	attributes();
	counters();
	dedicated();
	pauses();
	puts("ok");
	return 0;
}
