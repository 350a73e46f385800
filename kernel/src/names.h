/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Names of queues: the kernel permits several queues of the same name. */
#ifndef UWORK_KERNEL_NAMES_H
#define UWORK_KERNEL_NAMES_H

#include <uw_kernel.h>

/* The library's own queues. */
#define UW_KERNEL_RCU_QUEUE "uwork:rcu"
#define UW_KERNEL_WORKER_QUEUE "uwork:kthread_worker"

/*
 * Creates a queue of that name, or with a number appended if the name is in use. NULL and errno on
 * failure.
 */
struct uw_queue *uw_kernel_create_named(const char *name, const struct uw_queue_attrs *attrs);

#endif
