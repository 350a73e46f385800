/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Wait queues that are found by an address. */
#include <pthread.h>

#include <linux/hash.h>
#include <linux/wait.h>
#include "fork.h"

#define QUEUE_BITS 6

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct wait_queue_head queues[1 << QUEUE_BITS];

static void init_queues(void)
{
	size_t index;

	for (index = 0; index < sizeof(queues) / sizeof(queues[0]); index++)
		init_waitqueue_head(&queues[index]);
}

/*
 * The queues are empty and free in the child: all waiters and holders were other threads of the
 * parent. They are made before the fork, so that no child finds the initialisation half done.
 */
void uw_wait_bit_fork(enum uw_fork at)
{
	switch (at) {
	case UW_FORK_PREPARE:
		pthread_once(&once, init_queues);
		break;
	case UW_FORK_PARENT:
		break;
	case UW_FORK_CHILD:
		init_queues();
		break;
	}
}

struct wait_queue_head *uw_kernel_var_queue(const volatile void *address)
{
	pthread_once(&once, init_queues);
	return &queues[hash_64((uintptr_t)address, QUEUE_BITS)];
}
