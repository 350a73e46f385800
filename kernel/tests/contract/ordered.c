// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * An ordered queue runs one item at a time, in the order of queueing, also during changes of its
 * attributes.
 */
#include "contract.h"

#define ITEMS 64

struct item {
	struct work_struct work;
	unsigned int number;
	unsigned int producer;
};

static struct workqueue_struct *wq;
static atomic_t inside, wrong, producers;
/* Not atomic, because the queue runs one item at a time. */
static unsigned int next_of[CONTRACT_THREADS];

static void run(struct work_struct *work)
{
	struct item *item = container_of(work, struct item, work);

	if (atomic_inc_return(&inside) != 1)
		atomic_inc(&wrong);
	if (next_of[item->producer]++ != item->number)
		atomic_inc(&wrong);
	atomic_dec(&inside);
}

static int produce(void *data)
{
	unsigned int producer = (unsigned int)atomic_fetch_inc(&producers), number = 0;
	struct item *items = kcalloc(ITEMS, sizeof(*items), GFP_KERNEL);
	int i, round;

	(void)data;
	BUG_ON(!items);
	for (round = 0; round < rounds / 4; round++) {
		for (i = 0; i < ITEMS; i++) {
			items[i].producer = producer;
			items[i].number = number++;
			INIT_WORK(&items[i].work, run);
			queue_work(wq, &items[i].work);
		}
		flush_work(&items[ITEMS - 1].work);
	}
	kfree(items);
	return contract_end();
}

static void order_of(struct workqueue_struct *queue, bool retune)
{
	struct contract_threads threads;
	struct workqueue_attrs *attrs;
	int i;

	wq = queue;
	BUG_ON(!wq);
	memset(next_of, 0, sizeof(next_of));
	atomic_set(&producers, 0);
	atomic_set(&wrong, 0);
	contract_start(&threads, produce, NULL);
	attrs = alloc_workqueue_attrs();
	BUG_ON(!attrs);
	for (i = 0; retune && i < 20; i++) {
		attrs->affn_scope = i % 2 ? WQ_AFFN_SYSTEM : WQ_AFFN_CPU;
		CHECK(apply_workqueue_attrs(wq, attrs) == 0);
	}
	free_workqueue_attrs(attrs);
	contract_stop(&threads);
	drain_workqueue(wq);
	CHECK(atomic_read(&wrong) == 0);
	for (i = 0; i < CONTRACT_THREADS; i++)
		CHECK(next_of[i] == (unsigned int)(rounds / 4) * ITEMS);
	destroy_workqueue(wq);
}

struct thread_item {
	struct kthread_work work;
	unsigned int number;
};

static struct task_struct *only_thread;
static unsigned int next_of_worker;

static void run_on_worker(struct kthread_work *work)
{
	struct thread_item *item = container_of(work, struct thread_item, work);

	if (!only_thread)
		only_thread = current;
	CHECK(only_thread == current);
	CHECK(next_of_worker == item->number);
	next_of_worker++;
}

/* A kthread_worker has one thread, and runs its items in order. */
static void worker(void)
{
	static struct thread_item items[ITEMS];
	struct kthread_worker *thread = kthread_run_worker(0, "contract-worker");
	unsigned int i;

	BUG_ON(IS_ERR(thread));
	for (i = 0; i < ITEMS; i++) {
		kthread_init_work(&items[i].work, run_on_worker);
		items[i].number = i;
		CHECK(kthread_queue_work(thread, &items[i].work));
	}
	kthread_flush_worker(thread);
	CHECK(next_of_worker == ITEMS);
	CHECK(!kthread_cancel_work_sync(&items[0].work));
	kthread_destroy_worker(thread);
}

static void ordered(void)
{
	order_of(alloc_ordered_workqueue("contract-%s", 0, "plain"), false);
	order_of(alloc_ordered_workqueue("contract-%s", WQ_MEM_RECLAIM, "retuned"), true);
	worker();
}

CONTRACT(ordered);
