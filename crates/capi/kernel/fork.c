/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a child of fork() finds: every lock free, and nothing waited for that only the parent has. */
#include "fork.h"

void uw_fork_mutex(pthread_mutex_t *mutex, enum uw_fork at)
{
	switch (at) {
	case UW_FORK_PREPARE:
		pthread_mutex_lock(mutex);
		break;
	case UW_FORK_PARENT:
		pthread_mutex_unlock(mutex);
		break;
	case UW_FORK_CHILD:
		/* Its holder has another number here. */
		pthread_mutex_init(mutex, NULL);
		break;
	}
}

static void prepare(void)
{
	uw_task_fork(UW_FORK_PREPARE);
	uw_percpu_fork(UW_FORK_PREPARE);
	uw_printk_fork(UW_FORK_PREPARE);
	uw_rested_fork(UW_FORK_PREPARE);
	/* Last, as every free() takes it. */
	uw_debug_fork(UW_FORK_PREPARE);
}

static void after(enum uw_fork at)
{
	uw_debug_fork(at);
	uw_rested_fork(at);
	uw_printk_fork(at);
	uw_percpu_fork(at);
	uw_task_fork(at);
}

static void parent(void)
{
	after(UW_FORK_PARENT);
}

static void child(void)
{
	after(UW_FORK_CHILD);
}

static void watch(void)
{
	pthread_atfork(prepare, parent, child);
}

/*
 * Linked with whatever has a lock. When the program starts, and before the handlers of the engine are named, which has
 * no priority: what was named first is called last before a fork, when all other locks are held.
 */
__attribute__((constructor(101))) void uw_watch_forks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch);
}
