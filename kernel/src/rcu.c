/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Grace periods: RCU items on queues of the library. */
#include <errno.h>
#include <stdlib.h>

#include <linux/bug.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include "fork.h"
#include "frees.h"
#include "may_wait.h"
#include "names.h"

/* An ordered queue: a callback runs after all earlier callbacks. */
static struct uw_queue *callbacks(void)
{
	static struct uw_queue *made;
	struct uw_queue *queue = __atomic_load_n(&made, __ATOMIC_ACQUIRE);

	if (!queue) {
		struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
		struct uw_queue *other = NULL;

		uw_watch_forks();
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

/* The number of callbacks in progress on this thread. A callback may free its head, so the item does not tell. */
static __thread unsigned int depth;

static void run_callback(struct uw_work *item)
{
	struct rcu_head *head = UW_CONTAINER_OF(uw_to_rcu_work(item), struct rcu_head, uw_item);

	complete_grace_period(head->uw_number);
	depth++;
	head->func(head);
	depth--;
}

static bool queue_callback(struct rcu_head *head, rcu_callback_t func, uw_work_fn run)
{
	uw_rcu_work_init(&head->uw_item, run);
	head->func = func;
	head->uw_number = begin_grace_period();
	return uw_kernel_queued(uw_queue_rcu_work(callbacks(), &head->uw_item));
}

/* After uw_shutdown() the callback is refused, which is reported: it never runs. */
void call_rcu(struct rcu_head *head, rcu_callback_t func)
{
	queue_callback(head, func, run_callback);
}

bool uw_kernel_try_call_rcu(struct rcu_head *head, rcu_callback_t func)
{
	return queue_callback(head, func, run_callback);
}

/* The objects that kfree_rcu() has taken and that are not free yet. */
static unsigned long frees;

static void free_it(struct uw_work *item)
{
	struct rcu_head *head = UW_CONTAINER_OF(uw_to_rcu_work(item), struct rcu_head, uw_item);

	complete_grace_period(head->uw_number);
	/* The head is a part of the object. */
	kfree((void *)(uintptr_t)head->func);
	/* Release: a thread that reads the lower count finds the object in its cache. */
	__atomic_sub_fetch(&frees, 1, __ATOMIC_RELEASE);
}

/* Allocates nothing and waits for nothing: the place of the callback holds the object's address. */
void uw_kernel_kfree_rcu(struct rcu_head *head, void *ptr)
{
	__atomic_add_fetch(&frees, 1, __ATOMIC_RELAXED);
	/* After uw_shutdown() it is refused, which is reported: the object stays. */
	if (!queue_callback(head, (rcu_callback_t)(uintptr_t)ptr, free_it))
		__atomic_sub_fetch(&frees, 1, __ATOMIC_RELAXED);
}

/*
 * In a child that was forked by a reader: the highest number of the parent's grace periods, none of which ends there.
 * The first poll of a state up to that number begins a period of the child, and sets this to 0.
 */
static unsigned long inherited;

/*
 * In the child the parent's callbacks do not run. Readers and grace periods of the parent's other threads do not exist
 * there, so all states that are polled have passed, unless the thread that forked is a reader itself.
 */
void uw_rcu_fork(enum uw_fork at)
{
	if (at != UW_FORK_CHILD)
		return;
	frees = 0;
	if (uw_rcu_is_read_locked())
		inherited = begun;
	else
		completed = begun;
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
 * the queueing. Not in a thread hook: there the item, which is on the caller's stack, would stay queued.
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

	if (uw_kernel_context() & UW_KERNEL_IN_HOOK)
		uw_kernel_bug("synchronize_rcu, rcu_barrier: a thread hook must not wait", __FILE__, __LINE__);
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

/* Begins a grace period that nothing waits for. False without memory. */
static bool begin_polled_period(void)
{
	struct rcu_head *head = malloc(sizeof(*head));

	if (head)
		call_rcu(head, free_head);
	return head != NULL;
}

unsigned long start_poll_synchronize_rcu(void)
{
	unsigned long state = get_state_synchronize_rcu();

	if (!begin_polled_period())
		synchronize_rcu();
	return state;
}

bool poll_state_synchronize_rcu(unsigned long state)
{
	unsigned long last;

	if (__atomic_load_n(&completed, __ATOMIC_ACQUIRE) >= state)
		return true;
	if (state <= __atomic_load_n(&inherited, __ATOMIC_RELAXED)) {
		/* Of several threads one begins the period. Without memory a later poll does so. */
		last = __atomic_exchange_n(&inherited, 0, __ATOMIC_RELAXED);
		if (last && !begin_polled_period())
			__atomic_store_n(&inherited, last, __ATOMIC_RELAXED);
	}
	return false;
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

bool uw_kernel_has_frees(void)
{
	/* Acquire pairs with the release in free_it(). */
	return __atomic_load_n(&frees, __ATOMIC_ACQUIRE) != 0;
}

bool uw_kernel_wait_for_callbacks(void)
{
	struct waited waited;
	unsigned long number;

	if (!uw_kernel_may_wait() || uw_rcu_is_read_locked() || depth > 0)
		return false;
	number = begin_grace_period();
	run_behind(callbacks(), &waited);
	if (waited.ran)
		complete_grace_period(number);
	return waited.ran;
}
