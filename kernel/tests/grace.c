// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Waits for grace periods and for callbacks where they cannot wait: each ends the process with a message. If it
 * returned, its caller would free what is still in use. Each scene is a process of its own.
 */
#include <pthread.h>
#include <sched.h>

#include <linux/async.h>
#include <linux/completion.h>
#include <linux/rcupdate.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>

#include "scene.h"

static void shut_down(void)
{
	if (uw_shutdown(UW_DRAIN, 3600000000000ull, NULL) != 0)
		_exit(1);
}

static void synchronize_after_shutdown(void)
{
	shut_down();
	synchronize_rcu();
}

static void barrier_after_shutdown(void)
{
	shut_down();
	rcu_barrier();
}

static void synchronize_as_a_reader(void)
{
	rcu_read_lock();
	synchronize_rcu();
}

static void wait_for_callbacks(struct rcu_head *head)
{
	(void)head;
	rcu_barrier();
}

static void barrier_in_a_callback(void)
{
	DECLARE_COMPLETION_ONSTACK(never);
	static struct rcu_head head;

	call_rcu(&head, wait_for_callbacks);
	wait_for_completion(&never);
}

DEFINE_STATIC_SRCU(domain);

static void srcu_barrier_after_shutdown(void)
{
	shut_down();
	srcu_barrier(&domain);
}

static void wait_for_domain(struct rcu_head *head)
{
	(void)head;
	srcu_barrier(&domain);
}

static void srcu_barrier_in_a_callback(void)
{
	DECLARE_COMPLETION_ONSTACK(never);
	static struct rcu_head head;

	call_srcu(&domain, &head, wait_for_domain);
	wait_for_completion(&never);
}

static struct work_struct helped;
static pthread_t helper;

static void wait_below_a_callback(struct work_struct *work)
{
	(void)work;
	/* A worker was faster than the helper. */
	if (!pthread_equal(pthread_self(), helper))
		return;
	srcu_barrier(&domain);
	/* Only a barrier that has not waited gets here. */
	_exit(3);
}

static void help(struct rcu_head *head)
{
	(void)head;
	helper = pthread_self();
	for (;;) {
		queue_work(system_dfl_wq, &helped);
		uw_work_flush_helping(uw_kernel_work(&helped));
	}
}

/* A callback runs an item on its own stack, and that item waits for the callback. */
static void srcu_barrier_below_a_callback(void)
{
	DECLARE_COMPLETION_ONSTACK(never);
	static struct rcu_head head;

	INIT_WORK(&helped, wait_below_a_callback);
	call_srcu(&domain, &head, help);
	wait_for_completion(&never);
}

static void *wait_for_dropped(void *unused)
{
	(void)unused;
	srcu_barrier(&domain);
	_exit(3);
}

static void ignore(struct rcu_head *head)
{
	(void)head;
}

/* A reader keeps the first callback waiting. The shutdown removes the domain's item, which is queued again behind it. */
static void srcu_barrier_of_removed_callbacks(void)
{
	static struct rcu_head first, second;
	int index = srcu_read_lock(&domain);
	pthread_t waiter;

	call_srcu(&domain, &first, ignore);
	/* The item takes its callbacks when it runs. */
	while (__atomic_load_n(&domain.uw_callbacks, __ATOMIC_RELAXED))
		sched_yield();
	call_srcu(&domain, &second, ignore);
	if (pthread_create(&waiter, NULL, wait_for_dropped, NULL) != 0)
		_exit(1);
	/* Its callback is the newest one. */
	while (__atomic_load_n(&domain.uw_callbacks, __ATOMIC_RELAXED) == &second)
		sched_yield();
	uw_shutdown(UW_CANCEL, 0, NULL);
	srcu_read_unlock(&domain, index);
	pthread_join(waiter, NULL);
}

static void barrier_of_domain(void)
{
	srcu_barrier(&domain);
}

static void *wait_in_hook(const struct uw_thread *thread, void *wait)
{
	(void)thread;
	(*(void (**)(void))wait)();
	return NULL;
}

static void nothing(struct work_struct *work)
{
	(void)work;
}

/* Calls `wait` in a thread hook. */
static void in_a_hook(void (*wait)(void))
{
	static struct work_struct work;

	INIT_WORK(&work, nothing);
	if (!uw_thread_hooks_add(wait_in_hook, NULL, &wait))
		_exit(1);
	queue_work(system_dfl_wq, &work);
	flush_work(&work);
}

static void synchronize_in_a_hook(void)
{
	in_a_hook(synchronize_rcu);
}

static void barrier_in_a_hook(void)
{
	in_a_hook(rcu_barrier);
}

static void srcu_barrier_in_a_hook(void)
{
	in_a_hook(barrier_of_domain);
}

static void async_in_a_hook(void)
{
	in_a_hook(async_synchronize_full);
}

static void never_called(struct rcu_head *head)
{
	(void)head;
	_exit(2);
}

/* The refusal is reported. The process goes on, to a message that is checked. */
static void callback_after_shutdown(void)
{
	static struct rcu_head head;

	shut_down();
	call_rcu(&head, never_called);
	panic("after the refusal\n");
}

static int __init grace_init(void)
{
	check_abort("synchronize_rcu after a shutdown", synchronize_after_shutdown, "no grace period has passed");
	check_abort("rcu_barrier after a shutdown", barrier_after_shutdown, "the callbacks have not run");
	check_abort("synchronize_rcu by a reader", synchronize_as_a_reader, "no grace period has passed");
	check_abort("rcu_barrier in a callback", barrier_in_a_callback, "the callbacks have not run");
	check_abort("srcu_barrier after a shutdown", srcu_barrier_after_shutdown, "the callbacks have not run");
	check_abort("srcu_barrier in a callback", srcu_barrier_in_a_callback, "the caller is one of them");
	check_abort("srcu_barrier below a callback", srcu_barrier_below_a_callback, "the caller is one of them");
	check_abort("srcu_barrier of removed callbacks", srcu_barrier_of_removed_callbacks, "or the library is shut down");
	check_abort("synchronize_rcu in a thread hook", synchronize_in_a_hook, "a thread hook must not wait");
	check_abort("rcu_barrier in a thread hook", barrier_in_a_hook, "a thread hook must not wait");
	check_abort("srcu_barrier in a thread hook", srcu_barrier_in_a_hook, "a thread hook must not wait");
	check_abort("async_synchronize_full in a thread hook", async_in_a_hook, "a thread hook must not wait");
	check_abort("call_rcu after a shutdown: reported", callback_after_shutdown, "a call failed: ");
	check_abort("call_rcu after a shutdown: goes on", callback_after_shutdown, "after the refusal");
	return checked();
}

module_init(grace_init)
MODULE_LICENSE("GPL");
