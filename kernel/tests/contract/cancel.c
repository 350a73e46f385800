// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * cancel_*_sync and disable end an item that queues itself. No run follows, and no queueing is
 * counted twice.
 */
#include "contract.h"

struct item {
	struct work_struct work;
	struct delayed_work dwork;
	bool is_delayed;
	atomic_t runs;
	atomic_t queued;
	atomic_t inside;
};

static struct workqueue_struct *wq;

static bool queue(struct item *item)
{
	bool queued = item->is_delayed ? queue_delayed_work(wq, &item->dwork, 0) : queue_work(wq, &item->work);

	if (queued)
		atomic_inc(&item->queued);
	return queued;
}

static void run(struct item *item)
{
	atomic_inc(&item->inside);
	atomic_inc(&item->runs);
	queue(item);
	atomic_dec(&item->inside);
}

static void run_work(struct work_struct *work)
{
	run(container_of(work, struct item, work));
}

static void run_delayed(struct work_struct *work)
{
	run(container_of(to_delayed_work(work), struct item, dwork));
}

static struct item item;

static bool cancel_sync(void)
{
	return item.is_delayed ? cancel_delayed_work_sync(&item.dwork) : cancel_work_sync(&item.work);
}

/* The item queues itself until it is cancelled. */
static void against_requeue(void)
{
	int i;

	for (i = 0; i < rounds; i++) {
		int runs, taken;

		atomic_set(&item.runs, 0);
		atomic_set(&item.queued, 0);
		CHECK(queue(&item));
		if (i % 2)
			cond_resched();
		taken = cancel_sync();
		runs = atomic_read(&item.runs);
		CHECK(atomic_read(&item.inside) == 0);
		CHECK(work_busy(item.is_delayed ? &item.dwork.work : &item.work) == 0);
		CHECK(runs + taken == atomic_read(&item.queued));
		CHECK(!cancel_sync());
		CHECK(atomic_read(&item.runs) == runs);
	}
}

static atomic_t taken;

static int canceller(void *data)
{
	int i;

	(void)data;
	for (i = 0; i < rounds; i++) {
		if (i % 3 == 0)
			queue(&item);
		if (i % 2 ? cancel_sync() : cancel_work(item.is_delayed ? &item.dwork.work : &item.work))
			atomic_inc(&taken);
	}
	return contract_end();
}

/* Of several cancelling threads, at most one cancels a given queueing. */
static void against_each_other(void)
{
	struct contract_threads threads;

	atomic_set(&item.runs, 0);
	atomic_set(&item.queued, 0);
	atomic_set(&taken, 0);
	contract_start(&threads, canceller, NULL);
	contract_stop(&threads);
	if (cancel_sync())
		atomic_inc(&taken);
	CHECK(atomic_read(&item.runs) + atomic_read(&taken) == atomic_read(&item.queued));
}

static void disabled(void)
{
	struct work_struct *work = &item.work;
	int runs;

	item.is_delayed = false;
	CHECK(queue(&item));
	disable_work_sync(work);
	runs = atomic_read(&item.runs);
	CHECK(work_busy(work) == 0);
	CHECK(!queue_work(wq, work));
	CHECK(!disable_work(work));
	CHECK(!enable_work(work));
	CHECK(!queue_work(wq, work));
	CHECK(enable_work(work));
	CHECK(!work_pending(work));
	CHECK(atomic_read(&item.runs) == runs);
	CHECK(queue_work(wq, work));
	cancel_work_sync(work);
	disable_work(work);
	CHECK(enable_and_queue_work(wq, work));
	cancel_work_sync(work);
}

static void cancel(void)
{
	wq = alloc_workqueue("contract", WQ_UNBOUND, 0);
	BUG_ON(!wq);
	INIT_WORK(&item.work, run_work);
	INIT_DELAYED_WORK(&item.dwork, run_delayed);
	against_requeue();
	against_each_other();
	item.is_delayed = true;
	against_requeue();
	against_each_other();
	disabled();
	destroy_workqueue(wq);
}

CONTRACT(cancel);
