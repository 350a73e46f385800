/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Simple wait queues: aliases of the other wait queues. */
#ifndef UWORK_KERNEL_LINUX_SWAIT_H
#define UWORK_KERNEL_LINUX_SWAIT_H

#include <linux/wait.h>

struct swait_queue_head {
	struct wait_queue_head uw_queue;
};

#define __SWAIT_QUEUE_HEAD_INITIALIZER(name) { __WAIT_QUEUE_HEAD_INITIALIZER((name).uw_queue) }
#define DECLARE_SWAIT_QUEUE_HEAD(name) struct swait_queue_head name = __SWAIT_QUEUE_HEAD_INITIALIZER(name)
#define DECLARE_SWAIT_QUEUE_HEAD_ONSTACK(name) DECLARE_SWAIT_QUEUE_HEAD(name)
#define init_swait_queue_head(head) init_waitqueue_head(&(head)->uw_queue)
#define swait_active(head) waitqueue_active(&(head)->uw_queue)
#define swq_has_sleeper(head) wq_has_sleeper(&(head)->uw_queue)
#define swake_up_one(head) wake_up(&(head)->uw_queue)
#define swake_up_all(head) wake_up_all(&(head)->uw_queue)
#define swait_event_exclusive(head, condition) wait_event_exclusive((head).uw_queue, condition)
#define swait_event_idle_exclusive(head, condition) wait_event_exclusive((head).uw_queue, condition)
#define swait_event_interruptible_exclusive(head, condition) wait_event_interruptible_exclusive((head).uw_queue, condition)
#define swait_event_timeout_exclusive(head, condition, timeout) wait_event_timeout((head).uw_queue, condition, timeout)
#define swait_event_interruptible_timeout_exclusive(head, condition, timeout) \
	wait_event_timeout((head).uw_queue, condition, timeout)

#endif
