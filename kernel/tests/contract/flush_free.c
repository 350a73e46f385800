// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * An item may be freed immediately after a flush or cancel, and a function may free its own item.
 */
#include "contract.h"

struct item {
	struct work_struct work;
	struct rcu_work rwork;
	struct delayed_work dwork;
	atomic_t *runs;
	struct completion done;
};

static struct workqueue_struct *wq;
static atomic_t made, freed, runs;

static struct item *make(void)
{
	struct item *item = kzalloc(sizeof(*item), GFP_KERNEL);

	BUG_ON(!item);
	item->runs = &runs;
	atomic_inc(&made);
	return item;
}

static void destroy(struct item *item)
{
	memset(item, 0x6b, sizeof(*item));
	kfree(item);
	atomic_inc(&freed);
}

static void run(struct work_struct *work)
{
	atomic_inc(container_of(work, struct item, work)->runs);
}

static void run_delayed(struct work_struct *work)
{
	atomic_inc(container_of(to_delayed_work(work), struct item, dwork)->runs);
}

static void run_rcu(struct work_struct *work)
{
	atomic_inc(container_of(to_rcu_work(work), struct item, rwork)->runs);
}

static void run_and_free(struct work_struct *work)
{
	struct item *item = container_of(work, struct item, work);

	atomic_inc(item->runs);
	destroy(item);
}

static void run_and_complete(struct work_struct *work)
{
	struct item *item = container_of(work, struct item, work);

	atomic_inc(item->runs);
	complete(&item->done);
}

static int flush_and_free(void *data)
{
	int i;

	(void)data;
	for (i = 0; i < rounds; i++) {
		struct item *item = make();

		switch (i % 6) {
		case 0:
			INIT_WORK(&item->work, run);
			queue_work(wq, &item->work);
			flush_work(&item->work);
			break;
		case 1:
			INIT_DELAYED_WORK(&item->dwork, run_delayed);
			queue_delayed_work(wq, &item->dwork, 86400 * HZ);
			CHECK(flush_delayed_work(&item->dwork));
			break;
		case 2:
			INIT_DELAYED_WORK(&item->dwork, run_delayed);
			queue_delayed_work(wq, &item->dwork, (unsigned long)(i % 3));
			if (cancel_delayed_work_sync(&item->dwork))
				atomic_inc(&runs);
			break;
		case 3:
			/*
			 * A thread that was woken by the completion may free the item, although its
			 * function has not returned yet.
			 */
			INIT_WORK(&item->work, run_and_complete);
			init_completion(&item->done);
			queue_work(wq, &item->work);
			wait_for_completion(&item->done);
			break;
		case 4:
			INIT_RCU_WORK(&item->rwork, run_rcu);
			queue_rcu_work(wq, &item->rwork);
			flush_rcu_work(&item->rwork);
			break;
		default:
			INIT_WORK(&item->work, run_and_free);
			queue_work(wq, &item->work);
			continue;
		}
		destroy(item);
	}
	return contract_end();
}

/* After a flush of the queue all of its items have ended. */
static void flush_all(void)
{
	struct item *all[32];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		all[i] = make();
		INIT_WORK(&all[i]->work, run);
		queue_work(wq, &all[i]->work);
	}
	flush_workqueue(wq);
	for (i = 0; i < ARRAY_SIZE(all); i++)
		destroy(all[i]);
}

static void flush_free(void)
{
	struct contract_threads threads;
	int i;

	wq = alloc_workqueue("contract", WQ_UNBOUND, 0);
	BUG_ON(!wq);
	contract_start(&threads, flush_and_free, NULL);
	for (i = 0; i < rounds / 10; i++)
		flush_all();
	contract_stop(&threads);
	destroy_workqueue(wq);
	CHECK(atomic_read(&made) == atomic_read(&freed));
	CHECK(atomic_read(&made) == atomic_read(&runs));
}

CONTRACT(flush_free);
