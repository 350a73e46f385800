// SPDX-License-Identifier: MIT OR Apache-2.0
/* What docs/porting.md says to programs with a linux/workqueue.h of their own, row by row. */
#include <linux/container_of.h>
#include <linux/workqueue.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

static sem_t inside, go_on;
static atomic_int runs, at_once;

/* Never two runs at once. */
static void hold(struct work_struct *work)
{
	(void)work;
	CHECK(atomic_fetch_add(&at_once, 1) == 0);
	sem_post(&inside);
	sem_wait(&go_on);
	atomic_fetch_sub(&at_once, 1);
	atomic_fetch_add(&runs, 1);
}

static void count(struct work_struct *work)
{
	(void)work;
	atomic_fetch_add(&runs, 1);
}

static int next;
static bool in_order = true;

static struct numbered {
	struct work_struct work;
	int number;
} ordered_items[100];

static void append(struct work_struct *work)
{
	in_order = in_order && container_of(work, struct numbered, work)->number == next++;
}

int main(void)
{
	struct workqueue_struct *wq = alloc_workqueue("ported", WQ_UNBOUND, 4), *ordered;
	struct work_struct held, other;

	CHECK(wq && sem_init(&inside, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
	INIT_WORK(&held, hold);
	INIT_WORK(&other, count);
	CHECK(held.func == hold && !work_pending(&held));

	/* queue_work() of a running item does not wait: it runs once more, afterwards. */
	CHECK(queue_work(wq, &held));
	sem_wait(&inside);
	CHECK(!work_pending(&held) && queue_work(wq, &held) && work_pending(&held) && !queue_work(wq, &held));
	/* flush_work() waits for that item, not for the queue. */
	CHECK(queue_work(wq, &other));
	flush_work(&other);
	CHECK(atomic_load(&runs) == 1);
	sem_post(&go_on);
	sem_wait(&inside);
	/* cancel_work_sync() waits for the run in progress. */
	sem_post(&go_on);
	CHECK(!cancel_work_sync(&held));
	CHECK(atomic_load(&runs) == 3 && atomic_load(&at_once) == 0);

	/* One worker at a time, and the order is kept. */
	ordered = alloc_ordered_workqueue("ordered", 0);
	CHECK(ordered);
	for (int i = 0; i < 100; i++) {
		ordered_items[i].number = i;
		INIT_WORK(&ordered_items[i].work, append);
		CHECK(queue_work(ordered, &ordered_items[i].work));
	}
	/* destroy_workqueue() drains. */
	destroy_workqueue(ordered);
	CHECK(next == 100 && in_order);
	destroy_workqueue(wq);
	return 0;
}
