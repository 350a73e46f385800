// SPDX-License-Identifier: MIT OR Apache-2.0
/* A pending item is not queued again, and each successful queueing is one run. */
#include "contract.h"

struct counted {
	struct work_struct work;
	atomic_t queued;
	atomic_t runs;
	int written;
	int seen;
};

static struct workqueue_struct *wq;

static void count(struct work_struct *work)
{
	struct counted *counted = container_of(work, struct counted, work);

	atomic_inc(&counted->runs);
}

static int storm(void *data)
{
	struct counted *counted = data;
	int i;

	for (i = 0; i < rounds * 10; i++) {
		if (queue_work(wq, &counted->work))
			atomic_inc(&counted->queued);
	}
	return contract_end();
}

static DECLARE_COMPLETION(hold);
static DECLARE_COMPLETION(held);

static void hold_up(struct work_struct *work)
{
	(void)work;
	complete(&held);
	wait_for_completion(&hold);
}

static void look(struct work_struct *work)
{
	struct counted *counted = container_of(work, struct counted, work);

	counted->seen = counted->written;
	atomic_inc(&counted->runs);
}

/* Behind an item that keeps the queue busy, so that it stays pending. */
static void pending_is_seen(void)
{
	struct workqueue_struct *one = alloc_ordered_workqueue("contract-one", 0);
	struct work_struct first;
	struct counted counted;

	INIT_WORK_ONSTACK(&first, hold_up);
	INIT_WORK_ONSTACK(&counted.work, look);
	atomic_set(&counted.runs, 0);
	counted.written = 0;
	counted.seen = -1;
	CHECK(queue_work(one, &first));
	wait_for_completion(&held);
	counted.written = 1;
	CHECK(queue_work(one, &counted.work));
	CHECK(work_pending(&counted.work));
	counted.written = 2;
	CHECK(!queue_work(one, &counted.work));
	CHECK(work_busy(&counted.work) == WORK_BUSY_PENDING);
	CHECK((work_busy(&first) & WORK_BUSY_RUNNING) != 0);
	complete(&hold);
	flush_work(&counted.work);
	CHECK(atomic_read(&counted.runs) == 1);
	CHECK(counted.seen == 2);
	CHECK(!work_pending(&counted.work));
	CHECK(!flush_work(&counted.work));
	destroy_workqueue(one);
	destroy_work_on_stack(&first);
	destroy_work_on_stack(&counted.work);
}

static void dedup(void)
{
	static struct counted counted;
	struct contract_threads threads;

	wq = alloc_workqueue("contract", WQ_UNBOUND, 0);
	BUG_ON(!wq);
	INIT_WORK(&counted.work, count);
	contract_start(&threads, storm, &counted);
	contract_stop(&threads);
	flush_workqueue(wq);
	CHECK(atomic_read(&counted.queued) > 0);
	CHECK(atomic_read(&counted.queued) == atomic_read(&counted.runs));
	destroy_workqueue(wq);
	pending_is_seen();
}

CONTRACT(dedup);
