// SPDX-License-Identifier: MIT OR Apache-2.0
/* Delayed items: never early. Whatever operations race, each queueing is one run or one cancel. */
#include "contract.h"

#define ITEMS 4

struct item {
	struct delayed_work dwork;
	atomic_t queued;
	atomic_t ended;
	atomic_t inside;
};

static struct workqueue_struct *wq;
static struct item items[ITEMS];

static void run(struct work_struct *work)
{
	struct item *item = container_of(to_delayed_work(work), struct item, dwork);

	CHECK(atomic_inc_return(&item->inside) == 1);
	atomic_inc(&item->ended);
	CHECK(atomic_dec_return(&item->inside) == 0);
}

static void step(struct item *item, unsigned int what, unsigned long delay)
{
	switch (what % 5) {
	case 0:
	case 1:
		if (queue_delayed_work(wq, &item->dwork, delay))
			atomic_inc(&item->queued);
		break;
	case 2:
		/* False: the item was idle, and this call queued it. */
		if (!mod_delayed_work(wq, &item->dwork, delay))
			atomic_inc(&item->queued);
		break;
	case 3:
		if (cancel_delayed_work(&item->dwork))
			atomic_inc(&item->ended);
		break;
	default:
		flush_delayed_work(&item->dwork);
	}
}

static int race(void *data)
{
	unsigned int state = (unsigned int)(unsigned long)current;
	int i;

	(void)data;
	for (i = 0; i < rounds * 5; i++) {
		unsigned int what = contract_random(&state);

		step(&items[what % ITEMS], contract_random(&state), contract_random(&state) % 3);
	}
	return contract_end();
}

static void races(void)
{
	struct contract_threads threads;
	int i;

	for (i = 0; i < ITEMS; i++)
		INIT_DELAYED_WORK(&items[i].dwork, run);
	contract_start(&threads, race, NULL);
	contract_stop(&threads);
	for (i = 0; i < ITEMS; i++) {
		flush_delayed_work(&items[i].dwork);
		CHECK(!delayed_work_pending(&items[i].dwork));
		CHECK(atomic_read(&items[i].queued) == atomic_read(&items[i].ended));
	}
}

struct timed {
	struct delayed_work dwork;
	struct timer_list timer;
	ktime_t at;
	struct completion done;
};

static void note_time(struct work_struct *work)
{
	struct timed *timed = container_of(to_delayed_work(work), struct timed, dwork);

	timed->at = ktime_get();
	complete(&timed->done);
}

static void note_timer(struct timer_list *timer)
{
	struct timed *timed = from_timer(timed, timer, timer);

	timed->at = ktime_get();
	complete(&timed->done);
}

static void never_early(void)
{
	static struct timed timed;
	ktime_t begin;

	init_completion(&timed.done);
	INIT_DELAYED_WORK(&timed.dwork, note_time);
	/* Until then it is pending, and is not queued again. */
	CHECK(queue_delayed_work(wq, &timed.dwork, 86400 * HZ));
	CHECK(delayed_work_pending(&timed.dwork));
	CHECK(!queue_delayed_work(wq, &timed.dwork, 0));
	CHECK(cancel_delayed_work_sync(&timed.dwork));
	CHECK(!delayed_work_pending(&timed.dwork));

	begin = ktime_get();
	CHECK(queue_delayed_work(wq, &timed.dwork, msecs_to_jiffies(20)));
	wait_for_completion(&timed.done);
	CHECK(ktime_ms_delta(timed.at, begin) >= 20 - 1000 / HZ);

	/* Later than the time for which it was armed. */
	reinit_completion(&timed.done);
	begin = ktime_get();
	CHECK(queue_delayed_work(wq, &timed.dwork, 86400 * HZ));
	CHECK(mod_delayed_work(wq, &timed.dwork, msecs_to_jiffies(10)));
	wait_for_completion(&timed.done);
	CHECK(ktime_ms_delta(timed.at, begin) >= 10 - 1000 / HZ);
	flush_delayed_work(&timed.dwork);
	CHECK(!cancel_delayed_work_sync(&timed.dwork));
}

static void timers(void)
{
	static struct timed timed;
	unsigned long expires = jiffies + msecs_to_jiffies(10);

	init_completion(&timed.done);
	timer_setup(&timed.timer, note_timer, 0);
	CHECK(!timer_pending(&timed.timer));
	CHECK(mod_timer(&timed.timer, jiffies + 86400 * HZ) == 0);
	CHECK(timer_pending(&timed.timer));
	CHECK(mod_timer(&timed.timer, expires) == 1);
	wait_for_completion(&timed.done);
	CHECK(time_after_eq(jiffies, expires));
	CHECK(del_timer_sync(&timed.timer) == 0);
	mod_timer(&timed.timer, jiffies + 86400 * HZ);
	CHECK(del_timer_sync(&timed.timer) == 1);
	CHECK(!timer_pending(&timed.timer));
}

static void delayed(void)
{
	wq = alloc_workqueue("contract", WQ_UNBOUND, 0);
	BUG_ON(!wq);
	races();
	never_early();
	timers();
	destroy_workqueue(wq);
}

CONTRACT(delayed);
