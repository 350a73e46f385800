// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * synchronize_rcu() and rcu_barrier() where they cannot wait: each ends the process with a message.
 * If it returned, its caller would free what readers still see. Each scene is a process of its own.
 */
#include <linux/completion.h>
#include <linux/rcupdate.h>
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
	check_abort("call_rcu after a shutdown: reported", callback_after_shutdown, "a call failed: ");
	check_abort("call_rcu after a shutdown: goes on", callback_after_shutdown, "after the refusal");
	return checked();
}

module_init(grace_init)
MODULE_LICENSE("GPL");
