/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Grace periods: RCU items on queues of the library. */
#include <stdlib.h>

#include <linux/bug.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include "names.h"

/* An ordered queue: a callback runs after all earlier callbacks. */
static struct uw_queue *callbacks(void)
{
	static struct uw_queue *made;
	struct uw_queue *queue = __atomic_load_n(&made, __ATOMIC_ACQUIRE);

	if (!queue) {
		struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
		struct uw_queue *other = NULL;

		attrs.flags = UW_UNBOUND | UW_ORDERED;
		attrs.max_active = 1;
		queue = uw_kernel_create_named(UW_KERNEL_RCU_QUEUE, &attrs);
		if (!queue)
			uw_kernel_bug("no thread for grace periods", __FILE__, __LINE__);
		if (!__atomic_compare_exchange_n(&made, &other, queue, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			uw_queue_destroy(queue);
			queue = other;
		}
	}
	return queue;
}

static void run_callback(struct uw_work *item)
{
	struct rcu_head *head = UW_CONTAINER_OF(uw_to_rcu_work(item), struct rcu_head, uw_item);

	head->func(head);
}

void uw_kernel_call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	uw_rcu_work_init(&head->uw_item, run_callback);
	head->func = func;
	uw_queue_rcu_work(callbacks(), &head->uw_item);
}

struct to_free {
	struct rcu_head head;
	void *ptr;
};

static void free_it(struct rcu_head *head)
{
	struct to_free *what = UW_CONTAINER_OF(head, struct to_free, head);

	kfree(what->ptr);
	free(what);
}

/*
 * The head has no room for the pointer, and the item in it must not be freed before its function
 * has returned. So the pointer gets an allocation of its own.
 */
void uw_kernel_kfree_rcu(struct rcu_head *head, void *ptr)
{
	struct to_free *what = malloc(sizeof(*what));

	(void)head;
	if (!what) {
		synchronize_rcu();
		kfree(ptr);
		return;
	}
	what->ptr = ptr;
	uw_kernel_call_rcu(&what->head, free_it);
}

static void nothing(struct uw_work *item)
{
	(void)item;
}

/*
 * Queues an item behind those that call_rcu() and queue_rcu_work() have queued, and waits for it.
 */
static void wait_behind(struct uw_queue *queue)
{
	struct uw_rcu_work item;

	uw_rcu_work_init(&item, nothing);
	uw_queue_rcu_work(queue, &item);
	uw_rcu_work_flush(&item);
	/*
	 * The flush may return while the item's function still runs. After this call no thread uses
	 * the item.
	 */
	uw_work_cancel_sync(&item.work);
}

/* Uses another queue than the callbacks: a callback itself may wait for a grace period. */
void synchronize_rcu(void)
{
	wait_behind(uw_system_queue(UW_SYSTEM_DFL));
}

void rcu_barrier(void)
{
	wait_behind(callbacks());
}
