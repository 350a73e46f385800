/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Grace periods: rcu items on a queue of the library's. */
#include <stdlib.h>

#include <linux/bug.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include "names.h"

static struct uw_queue *callbacks(void)
{
	static struct uw_queue *made;
	struct uw_queue *queue = __atomic_load_n(&made, __ATOMIC_ACQUIRE);

	if (!queue) {
		struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
		struct uw_queue *other = NULL;

		queue = uw_kernel_create_named("rcu", &attrs);
		if (!queue)
			uw_kernel_bug("no thread for grace periods", __FILE__, __LINE__);
		if (!__atomic_compare_exchange_n(&made, &other, queue, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			uw_queue_destroy(queue);
			queue = other;
		}
	}
	return queue;
}

/* Queued, and not yet run: rcu_barrier() waits for 0. */
static uint32_t queued;

static void run_callback(struct uw_work *item)
{
	struct rcu_head *head = UW_CONTAINER_OF(uw_to_rcu_work(item), struct rcu_head, uw_item);

	head->func(head);
	if (__atomic_sub_fetch(&queued, 1, __ATOMIC_ACQ_REL) == 0)
		uw_kernel_wake(&queued, 0x7fffffff);
}

void uw_kernel_call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	uw_rcu_work_init(&head->uw_item, run_callback);
	head->func = func;
	__atomic_fetch_add(&queued, 1, __ATOMIC_ACQ_REL);
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

/* The head has no room for the pointer, and the item in it must not be freed before its function is over. */
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

void synchronize_rcu(void)
{
	struct uw_rcu_work item;

	uw_rcu_work_init(&item, nothing);
	uw_queue_rcu_work(callbacks(), &item);
	uw_rcu_work_flush(&item);
	/* The flush may end in the item's function; afterwards nobody touches the item. */
	uw_work_cancel_sync(&item.work);
}

void rcu_barrier(void)
{
	uint32_t left;

	/* Items of queue_rcu_work() that came before this one's are queued when it runs. */
	synchronize_rcu();
	while ((left = __atomic_load_n(&queued, __ATOMIC_ACQUIRE)) != 0)
		uw_kernel_wait(&queued, left, UW_KERNEL_FOREVER);
}
