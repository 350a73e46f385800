/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Callbacks after a grace period of a sleepable domain: one item for each domain. */
#include <linux/bug.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>

/* While the head is on the domain's stack, its item is unused and holds the link. */
static struct rcu_head **next_of(struct rcu_head *head)
{
	return (struct rcu_head **)(void *)&head->uw_item;
}

void uw_kernel_srcu_run(struct uw_work *item)
{
	struct srcu_struct *ssp = UW_CONTAINER_OF(item, struct srcu_struct, uw_item);
	struct rcu_head *newest = __atomic_exchange_n(&ssp->uw_callbacks, NULL, __ATOMIC_ACQUIRE);
	struct rcu_head *oldest = NULL;

	while (newest) {
		struct rcu_head *next = *next_of(newest);

		*next_of(newest) = oldest;
		oldest = newest;
		newest = next;
	}
	if (__atomic_exchange_n(&ssp->uw_is_polled, 0, __ATOMIC_ACQUIRE) || oldest)
		synchronize_srcu(ssp);
	while (oldest) {
		/* The callback frees the head. */
		struct rcu_head *next = *next_of(oldest);

		oldest->func(oldest);
		oldest = next;
	}
}

void call_srcu(struct srcu_struct *ssp, struct rcu_head *head, rcu_callback_t func)
{
	struct rcu_head *top = __atomic_load_n(&ssp->uw_callbacks, __ATOMIC_RELAXED);

	head->func = func;
	do {
		*next_of(head) = top;
	} while (!__atomic_compare_exchange_n(&ssp->uw_callbacks, &top, head, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	/* If the item is pending already, its next run takes this callback, too. */
	uw_kernel_queued(uw_queue_work(uw_system_queue(UW_SYSTEM_DFL_LONG), &ssp->uw_item));
}

unsigned long start_poll_synchronize_srcu(struct srcu_struct *ssp)
{
	unsigned long state = get_state_synchronize_srcu(ssp);

	/* If the item is pending already, its next run sees this, too. */
	__atomic_store_n(&ssp->uw_is_polled, 1, __ATOMIC_RELEASE);
	uw_kernel_queued(uw_queue_work(uw_system_queue(UW_SYSTEM_DFL_LONG), &ssp->uw_item));
	return state;
}

/* A callback of srcu_barrier, behind those it waits for. */
struct last {
	struct rcu_head head;
	bool ran;
};

static void note_run(struct rcu_head *head)
{
	UW_CONTAINER_OF(head, struct last, head)->ran = true;
}

/* Callbacks run in the order in which they were added. The flush alone does not tell that they ran: it returns where the
 * caller would wait for itself, and after a shutdown has removed the item. */
void srcu_barrier(struct srcu_struct *ssp)
{
	struct last last = { .ran = false };

	if (uw_kernel_context() & UW_KERNEL_IN_HOOK)
		uw_kernel_bug("srcu_barrier: a thread hook must not wait", __FILE__, __LINE__);
	call_srcu(ssp, &last.head, note_run);
	uw_work_flush(&ssp->uw_item);
	/* The list holds a head on this stack, so there is no way back. */
	if (!last.ran)
		uw_kernel_bug("srcu_barrier: the callbacks have not run: the caller is one of them, or the library is shut down",
			      __FILE__, __LINE__);
}
