// SPDX-License-Identifier: MIT OR Apache-2.0
/* Wait queues by hand, and every form of wait_event. */
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wait.h>

#define SLOTS 4

struct ring {
	struct mutex lock;
	wait_queue_head_t inq, outq;
	int items[SLOTS];
	unsigned int head, tail;
};

static struct ring *ring;

static unsigned int ring_used(struct ring *r)
{
	return READ_ONCE(r->head) - READ_ONCE(r->tail);
}

static int ring_put(struct ring *r, int item)
{
	if (mutex_lock_interruptible(&r->lock))
		return -ERESTARTSYS;
	while (ring_used(r) == SLOTS) {
		DEFINE_WAIT(wait);

		mutex_unlock(&r->lock);
		prepare_to_wait(&r->outq, &wait, TASK_INTERRUPTIBLE);
		if (ring_used(r) == SLOTS)
			schedule();
		finish_wait(&r->outq, &wait);
		if (signal_pending(current))
			return -ERESTARTSYS;
		if (mutex_lock_interruptible(&r->lock))
			return -ERESTARTSYS;
	}
	r->items[r->head++ % SLOTS] = item;
	mutex_unlock(&r->lock);
	wake_up_interruptible(&r->inq);
	return 0;
}

static int ring_get(struct ring *r, int *item)
{
	mutex_lock(&r->lock);
	while (!ring_used(r)) {
		mutex_unlock(&r->lock);
		if (wait_event_interruptible(r->inq, ring_used(r)))
			return -ERESTARTSYS;
		mutex_lock(&r->lock);
	}
	*item = r->items[r->tail++ % SLOTS];
	mutex_unlock(&r->lock);
	wake_up_interruptible(&r->outq);
	return 0;
}

static int producer(void *data)
{
	int i, ret;

	for (i = 1; i <= 100; i++) {
		ret = ring_put(ring, i);
		if (ret)
			return ret;
	}
	while (!kthread_should_stop()) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (!kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

static int __init ring_init(void)
{
	struct task_struct *task;
	int sum = 0, item, i, ret;

	ring = kzalloc(sizeof(*ring), GFP_KERNEL);
	if (!ring)
		return -ENOMEM;
	mutex_init(&ring->lock);
	init_waitqueue_head(&ring->inq);
	init_waitqueue_head(&ring->outq);

	task = kthread_run(producer, NULL, "producer");
	if (IS_ERR(task)) {
		ret = PTR_ERR(task);
		goto out;
	}
	for (i = 0; i < 100; i++) {
		ret = ring_get(ring, &item);
		if (ret)
			break;
		sum += item;
	}
	ret = kthread_stop(task);
	if (!ret && sum != 5050)
		ret = -EINVAL;
	if (!ret && wait_event_interruptible_timeout(ring->inq, ring_used(ring), 2) != 0)
		ret = -EINVAL;
	if (!ret && waitqueue_active(&ring->outq))
		ret = -EBUSY;
	if (!ret)
		pr_info("ring: passed\n");
out:
	if (ret)
		kfree(ring);
	return ret;
}

static void __exit ring_exit(void)
{
	kfree(ring);
}

module_init(ring_init);
module_exit(ring_exit);
MODULE_LICENSE("GPL v2");
MODULE_AUTHOR("uwork");
