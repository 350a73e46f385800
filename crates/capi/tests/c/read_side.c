// SPDX-License-Identifier: MIT OR Apache-2.0
/* An item that returns within a read side: one report, and grace periods continue. */
#include <stdatomic.h>
#include <string.h>

#include <uwork.h>

#include "check.h"

static _Atomic int reports, named;
static struct uw_queue *queue;

static void report(const char *text)
{
	if (!strstr(text, "RCU read side"))
		return;
	reports++;
	if (strstr(text, "forgets") && strstr(text, "\"read-side\""))
		named++;
}

static void forgets(struct uw_work *work)
{
	(void)work;
	CHECK(uw_rcu_read_lock() == 0 && uw_rcu_read_lock() == 0);
}

static void nothing(struct uw_work *work)
{
	(void)work;
}

static void wait_for_readers(void)
{
	struct uw_rcu_work item;

	uw_rcu_work_init(&item, nothing);
	CHECK(uw_queue_rcu_work(uw_system_queue(UW_SYSTEM_DFL), &item) == 1);
	uw_rcu_work_flush(&item);
	CHECK(uw_work_cancel_sync(&item.work) == 0);
}

static _Atomic int is_locked;

/* Runs on the same thread behind an item that has left its read side open. */
static void waits(struct uw_work *work)
{
	(void)work;
	wait_for_readers();
	is_locked = uw_rcu_is_read_locked();
}

static void helps(struct uw_work *work)
{
	struct uw_work *other = work + 1;

	CHECK(uw_rcu_read_lock() == 0);
	CHECK(uw_queue_work(queue, other) == 1);
	uw_work_flush_helping(other);
	/* Its own read side stays open. */
	CHECK(uw_rcu_is_read_locked());
	CHECK(uw_rcu_read_unlock() == 0);
}

int main(void)
{
	static struct uw_work first = UW_WORK_INIT(forgets), second = UW_WORK_INIT(waits);
	static struct uw_work pair[2] = { UW_WORK_INIT(helps), UW_WORK_INIT(nothing) };
	struct uw_queue *ordered = uw_queue_create("read-side", UW_UNBOUND | UW_ORDERED, 1);
	int round;

	CHECK(ordered && uw_set_reporter(report) == 0);
	for (round = 0; round < 20; round++) {
		CHECK(uw_queue_work(ordered, &first) == 1 && uw_queue_work(ordered, &second) == 1);
		uw_work_flush(&second);
		CHECK(!is_locked);
		wait_for_readers();
	}
	CHECK(uw_queue_flush(ordered) == 0);
	CHECK(reports == 1 && named == 1);

	queue = uw_queue_create("helped", UW_UNBOUND, 0);
	CHECK(queue && uw_queue_work(queue, &pair[0]) == 1);
	CHECK(uw_queue_drain(queue) == 0 && uw_queue_destroy(queue) == 0);
	wait_for_readers();
	CHECK(reports == 1);
	/* Outside of items the read side belongs to the thread. */
	CHECK(uw_rcu_read_lock() == 0 && uw_rcu_is_read_locked() && uw_rcu_read_unlock() == 0);
	CHECK(uw_queue_destroy(ordered) == 0);
	return 0;
}
