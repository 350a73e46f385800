/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* fork(): in the child every lock is free, and no thread waits for a thread of the parent. */
#include <stdlib.h>

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
		/*
		 * The owner is a thread id, which is another one in the child: unlocking could fail. The
		 * thread sanitizer, which knows the thread by a number of its own, must see it.
		 */
		pthread_mutex_unlock(mutex);
		pthread_mutex_init(mutex, NULL);
		break;
	}
}

static void prepare(void)
{
	uw_wait_bit_fork(UW_FORK_PREPARE);
	uw_async_fork(UW_FORK_PREPARE);
	uw_ticks_fork(UW_FORK_PREPARE);
	uw_task_fork(UW_FORK_PREPARE);
	uw_percpu_fork(UW_FORK_PREPARE);
	uw_printk_fork(UW_FORK_PREPARE);
	uw_slab_fork(UW_FORK_PREPARE);
	uw_quarantine_fork(UW_FORK_PREPARE);
	/* Last, because every free() takes this lock, also under the other locks. */
	uw_debug_fork(UW_FORK_PREPARE);
}

static void after(enum uw_fork at)
{
	uw_debug_fork(at);
	uw_quarantine_fork(at);
	uw_slab_fork(at);
	uw_printk_fork(at);
	uw_percpu_fork(at);
	uw_task_fork(at);
	uw_ticks_fork(at);
	uw_async_fork(at);
	uw_wait_bit_fork(at);
	uw_rcu_fork(at);
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
	/*
	 * An allocator may register handlers of its own at its first use. Registered later than these,
	 * they would lock the allocator first, and prepare() would wait for locks whose holders
	 * allocate. volatile: a pair of calls whose memory is unused would be optimized out.
	 */
	void *volatile memory = malloc(1);

	free(memory);
	pthread_atfork(prepare, parent, child);
}

/*
 * Each file that has a lock refers to this function, so that it is linked. pthread_atfork() calls
 * the prepare handlers in reverse order of registration. So this constructor has a priority that
 * runs it before the engine's (102): the handlers here then run last before a fork, when all other
 * locks are already held. The priority stands at the declaration: gcc ignores one at a definition
 * that follows a declaration without it.
 */
void uw_watch_forks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch);
}
