// SPDX-License-Identifier: MIT OR Apache-2.0
/* max_active: that many items run at the same time, and no more. */
#include "contract.h"

#define LIMIT 3
#define ITEMS 24

struct item {
	struct work_struct work;
	bool meets;
};

static struct workqueue_struct *wq;
static struct item items[ITEMS];
static atomic_t inside, most, arrived;
static DECLARE_COMPLETION(all_there);

static void run(struct work_struct *work)
{
	struct item *item = container_of(work, struct item, work);
	int now = atomic_inc_return(&inside), before = atomic_read(&most);

	while (now > before && !atomic_try_cmpxchg(&most, &before, now))
		;
	/* The first items wait for each other: together they are as many as may run at once. */
	if (item->meets) {
		if (atomic_inc_return(&arrived) == LIMIT)
			complete_all(&all_there);
		wait_for_completion(&all_there);
	}
	cond_resched();
	atomic_dec(&inside);
}

static void limit_of(struct workqueue_struct *limited)
{
	int i;

	wq = limited;
	BUG_ON(!wq);
	atomic_set(&most, 0);
	atomic_set(&arrived, 0);
	reinit_completion(&all_there);
	for (i = 0; i < ITEMS; i++) {
		INIT_WORK(&items[i].work, run);
		items[i].meets = i < LIMIT;
		/* On one CPU, because the limit of a per-CPU queue is per CPU. */
		CHECK(queue_work_on((int)cpumask_first(cpu_online_mask), wq, &items[i].work));
	}
	flush_workqueue(wq);
	CHECK(atomic_read(&inside) == 0);
	CHECK(atomic_read(&most) == LIMIT);
	destroy_workqueue(wq);
}

static struct work_struct probe;

static void nothing(struct work_struct *work)
{
	(void)work;
}

/* Above the limit an item waits, and runs when the limit is raised. */
static DECLARE_COMPLETION(go_on);
static DECLARE_COMPLETION(ran);

static void wait_here(struct work_struct *work)
{
	(void)work;
	wait_for_completion(&go_on);
}

static void say_so(struct work_struct *work)
{
	(void)work;
	complete(&ran);
}

static void raised(void)
{
	static struct work_struct first, second;

	wq = alloc_workqueue("contract-raised", WQ_PERCPU, 1);
	BUG_ON(!wq);
	INIT_WORK(&first, wait_here);
	INIT_WORK(&second, say_so);
	INIT_WORK(&probe, nothing);
	queue_work_on((int)cpumask_first(cpu_online_mask), wq, &first);
	queue_work_on((int)cpumask_first(cpu_online_mask), wq, &second);
	workqueue_set_max_active(wq, 2);
	wait_for_completion(&ran);
	complete(&go_on);
	destroy_workqueue(wq);
}

static void max_active(void)
{
	limit_of(alloc_workqueue("contract", WQ_UNBOUND, LIMIT));
	limit_of(alloc_workqueue("contract", WQ_PERCPU, LIMIT));
	raised();
}

CONTRACT(max_active);
