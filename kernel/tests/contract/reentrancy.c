// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * An item is never run by two threads at once, wherever and however often it is queued, and no
 * queueing is lost.
 */
#include "contract.h"

#define ITEMS 8

struct item {
	struct work_struct work;
	atomic_t inside;
	/*
	 * Not atomic on purpose: one run at a time accesses it, and each run sees the previous
	 * one's writes.
	 */
	unsigned long runs;
	atomic_long_t queued;
	atomic_t again;
};

static struct workqueue_struct *wq;
static struct item items[ITEMS];

static void run(struct work_struct *work)
{
	struct item *item = container_of(work, struct item, work);

	CHECK(atomic_inc_return(&item->inside) == 1);
	CHECK(current_work() == work);
	item->runs++;
	/* Every other run queues the item again, so that it is pending while it runs. */
	if (atomic_dec_if_positive(&item->again) >= 0 && queue_work(wq, work))
		atomic_long_inc(&item->queued);
	CHECK(atomic_dec_return(&item->inside) == 0);
}

static int storm(void *data)
{
	unsigned int state = (unsigned int)(unsigned long)current;
	int i;

	(void)data;
	for (i = 0; i < rounds * 20; i++) {
		struct item *item = &items[contract_random(&state) % ITEMS];

		if (queue_work(wq, &item->work))
			atomic_long_inc(&item->queued);
		if (i % 64 == 0)
			cond_resched();
	}
	return contract_end();
}

static void storm_on(unsigned int flags, int max_active)
{
	struct contract_threads threads;
	int i;

	wq = alloc_workqueue("contract", flags, max_active);
	BUG_ON(!wq);
	for (i = 0; i < ITEMS; i++) {
		INIT_WORK(&items[i].work, run);
		items[i].runs = 0;
		atomic_set(&items[i].inside, 0);
		atomic_set(&items[i].again, rounds);
		atomic_long_set(&items[i].queued, 0);
	}
	contract_start(&threads, storm, NULL);
	contract_stop(&threads);
	drain_workqueue(wq);
	for (i = 0; i < ITEMS; i++) {
		CHECK(work_busy(&items[i].work) == 0);
		CHECK(items[i].runs == (unsigned long)atomic_long_read(&items[i].queued));
	}
	destroy_workqueue(wq);
}

static void reentrancy(void)
{
	storm_on(WQ_UNBOUND, 0);
	storm_on(WQ_UNBOUND, 2);
	storm_on(WQ_PERCPU, 0);
	storm_on(WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_HIGHPRI, 0);
}

CONTRACT(reentrancy);
