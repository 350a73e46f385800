/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Wait queues. What the system has under this name, for wait(), is in <sys/wait.h> too, and the two do not agree
 * about their order: it is left out.
 */
#ifndef UWORK_KERNEL_LINUX_WAIT_H
#define UWORK_KERNEL_LINUX_WAIT_H

#include <linux/list.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

typedef struct wait_queue_entry wait_queue_entry_t;
typedef int (*wait_queue_func_t)(struct wait_queue_entry *entry, unsigned mode, int flags, void *key);

#define WQ_FLAG_EXCLUSIVE 0x01

struct wait_queue_entry {
	unsigned int flags;
	void *private_data;
	wait_queue_func_t func;
	struct list_head entry;
};

struct wait_queue_head {
	spinlock_t lock;
	struct list_head head;
};

typedef struct wait_queue_head wait_queue_head_t;

#define __WAIT_QUEUE_HEAD_INITIALIZER(name) { __SPIN_LOCK_UNLOCKED(name), LIST_HEAD_INIT((name).head) }
#define DECLARE_WAIT_QUEUE_HEAD(name) struct wait_queue_head name = __WAIT_QUEUE_HEAD_INITIALIZER(name)
#define DECLARE_WAIT_QUEUE_HEAD_ONSTACK(name) DECLARE_WAIT_QUEUE_HEAD(name)

static inline void init_waitqueue_head(struct wait_queue_head *wq_head)
{
	spin_lock_init(&wq_head->lock);
	INIT_LIST_HEAD(&wq_head->head);
}

static inline int default_wake_function(struct wait_queue_entry *entry, unsigned mode, int flags, void *key)
{
	(void)flags;
	(void)key;
	return uw_kernel_wake_task((struct task_struct *)entry->private_data, mode);
}

static inline int autoremove_wake_function(struct wait_queue_entry *entry, unsigned mode, int flags, void *key)
{
	int woken = default_wake_function(entry, mode, flags, key);

	if (woken)
		list_del_init(&entry->entry);
	return woken;
}

static inline void init_waitqueue_entry(struct wait_queue_entry *entry, struct task_struct *task)
{
	entry->flags = 0;
	entry->private_data = task;
	entry->func = default_wake_function;
	INIT_LIST_HEAD(&entry->entry);
}

static inline void init_wait_entry(struct wait_queue_entry *entry, unsigned int flags)
{
	init_waitqueue_entry(entry, uw_kernel_current());
	entry->flags = flags;
	entry->func = autoremove_wake_function;
}

#define init_wait(entry) init_wait_entry((entry), 0)
#define DEFINE_WAIT_FUNC(name, function) \
	struct wait_queue_entry name = { 0, uw_kernel_current(), (function), LIST_HEAD_INIT((name).entry) }
#define DEFINE_WAIT(name) DEFINE_WAIT_FUNC(name, autoremove_wake_function)
#define DECLARE_WAITQUEUE(name, task) \
	struct wait_queue_entry name = { 0, (task), default_wake_function, LIST_HEAD_INIT((name).entry) }

static inline bool waitqueue_active(struct wait_queue_head *wq_head)
{
	return !list_empty(&wq_head->head);
}

static inline bool wq_has_sleeper(struct wait_queue_head *wq_head)
{
	smp_mb();
	return waitqueue_active(wq_head);
}

static inline void add_wait_queue(struct wait_queue_head *wq_head, struct wait_queue_entry *entry)
{
	spin_lock(&wq_head->lock);
	list_add(&entry->entry, &wq_head->head);
	spin_unlock(&wq_head->lock);
}

static inline void remove_wait_queue(struct wait_queue_head *wq_head, struct wait_queue_entry *entry)
{
	spin_lock(&wq_head->lock);
	list_del_init(&entry->entry);
	spin_unlock(&wq_head->lock);
}

static inline void prepare_to_wait(struct wait_queue_head *wq_head, struct wait_queue_entry *entry, unsigned int state)
{
	spin_lock(&wq_head->lock);
	if (list_empty(&entry->entry)) {
		if (entry->flags & WQ_FLAG_EXCLUSIVE)
			list_add_tail(&entry->entry, &wq_head->head);
		else
			list_add(&entry->entry, &wq_head->head);
	}
	set_current_state(state);
	spin_unlock(&wq_head->lock);
}

static inline void prepare_to_wait_exclusive(struct wait_queue_head *wq_head, struct wait_queue_entry *entry,
					     unsigned int state)
{
	entry->flags |= WQ_FLAG_EXCLUSIVE;
	prepare_to_wait(wq_head, entry, state);
}

static inline void finish_wait(struct wait_queue_head *wq_head, struct wait_queue_entry *entry)
{
	__set_current_state(TASK_RUNNING);
	spin_lock(&wq_head->lock);
	list_del_init(&entry->entry);
	spin_unlock(&wq_head->lock);
}

/* Those that wait together are all woken, of the others `exclusive`; 0: all. */
static inline void uw_kernel_wake_queue(struct wait_queue_head *wq_head, unsigned int mode, int exclusive)
{
	struct wait_queue_entry *entry, *next;

	spin_lock(&wq_head->lock);
	list_for_each_entry_safe(entry, next, &wq_head->head, entry) {
		unsigned int flags = entry->flags;

		if (entry->func(entry, mode, 0, NULL) && (flags & WQ_FLAG_EXCLUSIVE) && --exclusive == 0)
			break;
	}
	spin_unlock(&wq_head->lock);
}

#define wake_up(wq_head) uw_kernel_wake_queue((wq_head), TASK_NORMAL, 1)
#define wake_up_nr(wq_head, nr) uw_kernel_wake_queue((wq_head), TASK_NORMAL, (nr))
#define wake_up_all(wq_head) uw_kernel_wake_queue((wq_head), TASK_NORMAL, 0)
#define wake_up_interruptible(wq_head) uw_kernel_wake_queue((wq_head), TASK_INTERRUPTIBLE, 1)
#define wake_up_interruptible_all(wq_head) uw_kernel_wake_queue((wq_head), TASK_INTERRUPTIBLE, 0)
#define wake_up_locked(wq_head) wake_up(wq_head)

/* Waits until the condition holds, or for so many ticks; what is left of them, 1 at least if it holds. */
#define uw_kernel_wait_event(wq_head, condition, timeout, exclusive) \
	__extension__({ \
		struct wait_queue_entry uw_entry; \
		long uw_left = (timeout); \
		init_wait_entry(&uw_entry, (exclusive)); \
		for (;;) { \
			prepare_to_wait(&(wq_head), &uw_entry, TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE); \
			if (condition) { \
				uw_left = uw_left > 0 ? uw_left : 1; \
				break; \
			} \
			if (uw_left == 0) \
				break; \
			uw_left = uw_kernel_schedule(uw_left); \
		} \
		finish_wait(&(wq_head), &uw_entry); \
		uw_left; \
	})

#define wait_event(wq_head, condition) \
	((void)((condition) ? 1 : uw_kernel_wait_event(wq_head, condition, MAX_SCHEDULE_TIMEOUT, 0)))
#define wait_event_timeout(wq_head, condition, timeout) \
	((condition) ? ((long)(timeout) > 0 ? (long)(timeout) : 1) : uw_kernel_wait_event(wq_head, condition, (long)(timeout), 0))
#define wait_event_interruptible(wq_head, condition) (wait_event(wq_head, condition), 0)
#define wait_event_killable(wq_head, condition) (wait_event(wq_head, condition), 0)
#define wait_event_idle(wq_head, condition) wait_event(wq_head, condition)
#define wait_event_freezable(wq_head, condition) (wait_event(wq_head, condition), 0)
#define wait_event_interruptible_timeout(wq_head, condition, timeout) wait_event_timeout(wq_head, condition, timeout)
#define wait_event_killable_timeout(wq_head, condition, timeout) wait_event_timeout(wq_head, condition, timeout)
#define wait_event_idle_timeout(wq_head, condition, timeout) wait_event_timeout(wq_head, condition, timeout)
#define wait_event_exclusive(wq_head, condition) \
	((void)((condition) ? 1 : uw_kernel_wait_event(wq_head, condition, MAX_SCHEDULE_TIMEOUT, WQ_FLAG_EXCLUSIVE)))
#define wait_event_interruptible_exclusive(wq_head, condition) (wait_event_exclusive(wq_head, condition), 0)

#endif
