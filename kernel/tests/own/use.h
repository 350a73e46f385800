/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the programs: their use of the two headers. */
#include <sched.h>

#ifndef HAS_OWN_JIFFIES
/* A member of this name. */
struct stamp {
	unsigned long jiffies;
};
#else
struct stamp {
	unsigned long ticks;
};
#endif

struct object {
	struct list_head list;
	struct work_struct work;
	struct delayed_work later;
	struct timer_list timer;
	int ran;
	struct stamp stamp;
};

static void on_work(struct work_struct *work)
{
	container_of(work, struct object, work)->ran += 1;
}

static void on_time(struct work_struct *work)
{
	container_of(to_delayed_work(work), struct object, later)->ran += 10;
}

static void on_timer(struct timer_list *timer)
{
	struct object *object = from_timer(object, timer, timer);

	__atomic_fetch_add(&object->ran, 100, __ATOMIC_SEQ_CST);
}

int main(void)
{
	struct workqueue_struct *wq = alloc_workqueue("own", WQ_UNBOUND, 0);
	struct object object = { .ran = 0 };

	INIT_WORK(&object.work, on_work);
	INIT_DELAYED_WORK(&object.later, on_time);
	timer_setup(&object.timer, on_timer, 0);
	if (!wq || !queue_work(wq, &object.work))
		return 1;
	flush_work(&object.work);
	queue_delayed_work(wq, &object.later, HZ / 50);
	flush_delayed_work(&object.later);
	mod_timer(&object.timer, jiffies + 1);
	while (timer_pending(&object.timer))
		sched_yield();
	del_timer_sync(&object.timer);
	destroy_workqueue(wq);
	return object.ran == 111 && HZ == EXPECTED_HZ ? 0 : 2;
}
