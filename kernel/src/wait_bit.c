/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Wait queues that are found by an address. */
#include <pthread.h>

#include <linux/hash.h>
#include <linux/wait.h>

#define QUEUE_BITS 6

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct wait_queue_head queues[1 << QUEUE_BITS];

static void init_queues(void)
{
	size_t index;

	for (index = 0; index < sizeof(queues) / sizeof(queues[0]); index++)
		init_waitqueue_head(&queues[index]);
}

struct wait_queue_head *uw_kernel_var_queue(const volatile void *address)
{
	pthread_once(&once, init_queues);
	return &queues[hash_64((uintptr_t)address, QUEUE_BITS)];
}
