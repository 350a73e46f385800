// SPDX-License-Identifier: MIT OR Apache-2.0
/* Items: queueing, waiting, cancelling, static initialisers. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>

#include "item.h"

static const uint64_t MS = 1000 * 1000;

static void items(void)
{
	struct uw_queue *queue = make("items");
	int cpu = first_cpu(), node = uw_cpu_node(cpu);
	char address[32], *text;
	struct item item;

	init(&item);
	CHECK(uw_queue_work(queue, &item.work) == 1);
	uw_work_flush(&item.work);
	CHECK(uw_queue_work_on(queue, cpu, &item.work) == 1);
	uw_work_flush_helping(&item.work);
	CHECK(uw_queue_work_node(queue, node, &item.work) == 1);
	CHECK(uw_queue_flush(queue) == 0);
	CHECK(atomic_load(&item.runs) == 3);
	CHECK(uw_work_is_pending(&item.work) == 0 && uw_work_busy(&item.work) == 0);
	CHECK(uw_work_flush(&item.work) == 0);
	CHECK(uw_work_cancel(&item.work) == 0 && uw_work_cancel_sync(&item.work) == 0);

	CHECK(uw_work_disable(&item.work) == 0 && uw_work_disable_sync(&item.work) == 0);
	CHECK(uw_queue_work(queue, &item.work) == -EPERM);
	CHECK(uw_enable_and_queue_work(queue, &item.work) == 0);
	CHECK(uw_enable_and_queue_work(queue, &item.work) == 1);
	uw_work_flush(&item.work);
	CHECK(atomic_load(&item.runs) == 4);
	CHECK(uw_current_work() == NULL && uw_set_worker_desc("outside") == 0);

	CHECK(uw_queue_delayed_work(queue, &item.delayed, HOUR) == 1);
	CHECK(uw_queue_delayed_work(queue, &item.delayed, 0) == 0);
	CHECK(uw_mod_delayed_work(queue, &item.delayed, HOUR) == 0);
	CHECK(uw_mod_delayed_work_on(queue, cpu, &item.delayed, HOUR) == 0);
	CHECK(uw_work_is_pending(&item.delayed.work) == 1);
	/* In the debug mode, too, the dump shows this item and not its shadow. */
	text = uw_dump();
	snprintf(address, sizeof(address), "%#" PRIxPTR, (uintptr_t)&item.delayed);
	CHECK(text && strstr(text, "run_delayed") && strstr(text, address));
	uw_string_free(text);
	CHECK(uw_delayed_work_flush(&item.delayed) == 1);
	CHECK(uw_queue_delayed_work_on(queue, cpu, &item.delayed, HOUR) == 1);
	CHECK(uw_work_cancel(&item.delayed.work) == 1);
	CHECK(uw_mod_delayed_work(queue, &item.delayed, MS) == 1);
	CHECK(uw_delayed_work_flush(&item.delayed) >= 0);
	CHECK(atomic_load(&item.runs) == 6);

	CHECK(uw_rcu_read_lock() == 0 && uw_rcu_is_read_locked());
	CHECK(uw_queue_rcu_work(queue, &item.rcu) == 1);
	CHECK(uw_queue_rcu_work(queue, &item.rcu) == 0);
	CHECK(uw_rcu_work_flush(&item.rcu) == 0);
	CHECK(uw_rcu_read_unlock() == 0 && !uw_rcu_is_read_locked());
	CHECK(uw_rcu_work_flush(&item.rcu) >= 0);
	CHECK(uw_queue_flush(queue) == 0);
	CHECK(atomic_load(&item.runs) == 7);
	CHECK(uw_queue_is_idle(queue) >= 0);
	CHECK(uw_queue_drain(queue) == 0);
	CHECK(uw_queue_flush_timeout(queue, HOUR) == 0);
	CHECK(uw_queue_destroy(queue) == 0);
}

static void static_runs(struct uw_work *work);
static atomic_int static_count;
static struct uw_work static_work = UW_WORK_INIT(static_runs);
static struct uw_delayed_work static_delayed = UW_DELAYED_WORK_INIT(static_runs);
static struct uw_delayed_work static_deferrable = UW_DEFERRABLE_WORK_INIT(static_runs);
static struct uw_rcu_work static_rcu = UW_RCU_WORK_INIT(static_runs);

static void static_runs(struct uw_work *work)
{
	CHECK(work->func == static_runs);
	atomic_fetch_add(&static_count, 1);
}

static void initialisers(void)
{
	struct uw_queue *queue = uw_system_queue(UW_SYSTEM_DFL);

	CHECK(queue);
	CHECK(uw_queue_work(queue, &static_work) == 1);
	CHECK(uw_queue_delayed_work(queue, &static_delayed, HOUR) == 1);
	CHECK(uw_queue_delayed_work(queue, &static_deferrable, HOUR) == 1);
	CHECK(uw_queue_rcu_work(queue, &static_rcu) == 1);
	CHECK(uw_delayed_work_flush(&static_delayed) == 1);
	CHECK(uw_delayed_work_flush(&static_deferrable) == 1);
	uw_rcu_work_flush(&static_rcu);
	uw_work_flush(&static_rcu.work);
	uw_work_flush(&static_work);
	CHECK(atomic_load(&static_count) == 4);
}

#define SHARED 200

static atomic_int shared_runs, shared_queued;
static struct uw_work shared[SHARED];
static pthread_barrier_t start;

static void count_shared(struct uw_work *work)
{
	(void)work;
	atomic_fetch_add(&shared_runs, 1);
}

static void *use_shared(void *queue)
{
	int i;

	pthread_barrier_wait(&start);
	for (i = 0; i < SHARED; i++) {
		int queued = uw_queue_work(queue, &shared[i]);

		CHECK(queued >= 0);
		atomic_fetch_add(&shared_queued, queued);
	}
	return NULL;
}

/* Several threads may be the first to use a statically initialised item. */
static void used_first_by_several(void)
{
	struct uw_queue *queue = make("shared");
	pthread_t threads[3];
	size_t i;

	for (i = 0; i < SHARED; i++)
		shared[i] = (struct uw_work)UW_WORK_INIT(count_shared);
	CHECK(pthread_barrier_init(&start, NULL, 3) == 0);
	for (i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, use_shared, queue) == 0);
	for (i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(uw_queue_flush(queue) == 0);
	CHECK(atomic_load(&shared_runs) == atomic_load(&shared_queued) && atomic_load(&shared_runs) >= SHARED);
	CHECK(uw_queue_destroy(queue) == 0);
}

int main(void)
{
	items();
	initialisers();
	used_first_by_several();
	puts("ok");
	return 0;
}
