/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Grace periods: RCU items on queues of the library. */
#include <errno.h>
#include <stdlib.h>

#include <linux/bug.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include "frees.h"
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
		/* After a shutdown. This one refuses every item, and the caller reports that. */
		if (!queue && errno == ESHUTDOWN)
			return uw_system_queue(UW_SYSTEM_DFL);
		if (!queue)
			uw_kernel_bug("no thread for grace periods", __FILE__, __LINE__);
		if (!__atomic_compare_exchange_n(&made, &other, queue, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			uw_queue_destroy(queue);
			queue = other;
		}
	}
	return queue;
}

/*
 * Grace periods that are polled. Each one takes the next number before it begins, and raises
 * `completed` to that number at its end. A state is the number that the next one will take: all
 * grace periods with that number or a higher one begin later. No number is taken twice in the life
 * of a process.
 */
static unsigned long begun, completed;

/*
 * The caller has removed what readers see, and then reads `begun`. If it misses the number of a
 * grace period, this fence and the one below order the removal before the begin of that period.
 */
unsigned long get_state_synchronize_rcu(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&begun, __ATOMIC_RELAXED) + 1;
}

static unsigned long begin_grace_period(void)
{
	unsigned long number = __atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED);

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return number;
}

static void complete_grace_period(unsigned long number)
{
	unsigned long old = __atomic_load_n(&completed, __ATOMIC_RELAXED);

	/* Release: the readers that it waited for have ended for each thread that reads the number. */
	while (old < number &&
	       !__atomic_compare_exchange_n(&completed, &old, number, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
}

static void run_callback(struct uw_work *item)
{
	struct rcu_head *head = UW_CONTAINER_OF(uw_to_rcu_work(item), struct rcu_head, uw_item);

	complete_grace_period(head->uw_number);
	head->func(head);
}

/* After uw_shutdown() the callback is refused, which is reported: it never runs. */
void call_rcu(struct rcu_head *head, rcu_callback_t func)
{
	uw_rcu_work_init(&head->uw_item, run_callback);
	head->func = func;
	head->uw_number = begin_grace_period();
	uw_kernel_queued(uw_queue_rcu_work(callbacks(), &head->uw_item));
}

struct to_free {
	struct rcu_head head;
	void *ptr;
};

/* The objects that kfree_rcu() has taken and that are not free yet. */
static unsigned long frees;

static void free_it(struct rcu_head *head)
{
	struct to_free *what = UW_CONTAINER_OF(head, struct to_free, head);

	kfree(what->ptr);
	free(what);
	/* Release: a thread that reads the lower count finds the object in its cache. */
	__atomic_sub_fetch(&frees, 1, __ATOMIC_RELEASE);
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
	__atomic_add_fetch(&frees, 1, __ATOMIC_RELAXED);
	call_rcu(&what->head, free_it);
}

/* An item that a thread waits for, and whether it has run. */
struct waited {
	struct uw_rcu_work item;
	bool ran;
};

static void note_run(struct uw_work *item)
{
	UW_CONTAINER_OF(uw_to_rcu_work(item), struct waited, item)->ran = true;
}

/*
 * Queues an item behind those that call_rcu() and queue_rcu_work() have queued, and waits for it. If
 * it is refused or removed, or if the wait would never end, `ran` stays false. Returns the result of
 * the queueing.
 */
static int run_behind(struct uw_queue *queue, struct waited *waited)
{
	int code;

	waited->ran = false;
	uw_rcu_work_init(&waited->item, note_run);
	code = uw_queue_rcu_work(queue, &waited->item);
	uw_rcu_work_flush(&waited->item);
	/*
	 * The flush may return while the item's function still runs. After this call no thread uses
	 * the item.
	 */
	uw_work_cancel_sync(&waited->item.work);
	return code;
}

/*
 * The caller may free what readers see when this returns. So the process ends, with this message, if
 * the item has not run.
 */
static void wait_behind(struct uw_queue *queue, const char *failed)
{
	struct waited waited;

	uw_kernel_queued(run_behind(queue, &waited));
	if (!waited.ran)
		uw_kernel_bug(failed, __FILE__, __LINE__);
}

/* Uses another queue than the callbacks: a callback itself may wait for a grace period. */
void synchronize_rcu(void)
{
	unsigned long number = begin_grace_period();

	wait_behind(uw_system_queue(UW_SYSTEM_DFL),
		    "synchronize_rcu: no grace period has passed: the caller is a reader, or the library is shut down");
	complete_grace_period(number);
}

static void free_head(struct rcu_head *head)
{
	free(head);
}

unsigned long start_poll_synchronize_rcu(void)
{
	unsigned long state = get_state_synchronize_rcu();
	struct rcu_head *head = malloc(sizeof(*head));

	if (head)
		call_rcu(head, free_head);
	else
		synchronize_rcu();
	return state;
}

bool poll_state_synchronize_rcu(unsigned long state)
{
	return __atomic_load_n(&completed, __ATOMIC_ACQUIRE) >= state;
}

void cond_synchronize_rcu(unsigned long state)
{
	if (!poll_state_synchronize_rcu(state))
		synchronize_rcu();
}

void rcu_barrier(void)
{
	unsigned long number = begin_grace_period();

	wait_behind(callbacks(),
		    "rcu_barrier: the callbacks have not run: the caller is one of them, or the library is shut down");
	complete_grace_period(number);
}

/* Whether the caller is a callback of call_rcu(). */
static bool in_callback(void)
{
	const struct uw_work *item = uw_current_work();

	return item && item->func == run_callback;
}

void uw_kernel_wait_for_frees(void)
{
	struct waited waited;
	unsigned long number;

	/* Acquire pairs with the release in free_it(). */
	if (!__atomic_load_n(&frees, __ATOMIC_ACQUIRE) || in_callback())
		return;
	number = begin_grace_period();
	run_behind(callbacks(), &waited);
	if (waited.ran)
		complete_grace_period(number);
}
