/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Wait queues. The system's header of this name has the constants for wait(). It is not included:
 * <sys/wait.h> has them too, and the two conflict depending on the order of their inclusion.
 */
#ifndef UWORK_KERNEL_LINUX_WAIT_H
#define UWORK_KERNEL_LINUX_WAIT_H

#include "../uw_kernel.h"
#include <linux/bitops.h>
#include <linux/errno.h>
#include <linux/list.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

typedef struct wait_queue_entry wait_queue_entry_t;
typedef int (*wait_queue_func_t)(struct wait_queue_entry *entry, unsigned mode, int flags, void *key);

#define WQ_FLAG_EXCLUSIVE 0x01
#define WQ_FLAG_WOKEN 0x02

/* The name is a keyword of C++. */
#ifdef __cplusplus
#define UW_WAIT_PRIVATE private_data
#else
#define UW_WAIT_PRIVATE private
#endif

struct wait_queue_entry {
	unsigned int flags;
	void *UW_WAIT_PRIVATE;
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
	return uw_kernel_wake_task((struct task_struct *)entry->UW_WAIT_PRIVATE, mode);
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
	entry->UW_WAIT_PRIVATE = task;
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

static inline void init_waitqueue_func_entry(struct wait_queue_entry *entry, wait_queue_func_t function)
{
	init_waitqueue_entry(entry, NULL);
	entry->func = function;
}

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

static inline void add_wait_queue_exclusive(struct wait_queue_head *wq_head, struct wait_queue_entry *entry)
{
	entry->flags |= WQ_FLAG_EXCLUSIVE;
	spin_lock(&wq_head->lock);
	list_add_tail(&entry->entry, &wq_head->head);
	spin_unlock(&wq_head->lock);
}

/* The caller holds the queue's lock. */
static inline void __add_wait_queue(struct wait_queue_head *wq_head, struct wait_queue_entry *entry)
{
	list_add(&entry->entry, &wq_head->head);
}

static inline void __remove_wait_queue(struct wait_queue_head *wq_head, struct wait_queue_entry *entry)
{
	(void)wq_head;
	list_del_init(&entry->entry);
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

/*
 * Wakes all non-exclusive waiters, and `exclusive` of the others (0: all). The caller holds the
 * queue's lock.
 */
static inline void uw_kernel_wake_locked(struct wait_queue_head *wq_head, unsigned int mode, int exclusive)
{
	struct wait_queue_entry *entry, *next;

	list_for_each_entry_safe(entry, next, &wq_head->head, entry) {
		unsigned int flags = READ_ONCE(entry->flags);

		if (entry->func(entry, mode, 0, NULL) && (flags & WQ_FLAG_EXCLUSIVE) && --exclusive == 0)
			break;
	}
}

static inline void uw_kernel_wake_queue(struct wait_queue_head *wq_head, unsigned int mode, int exclusive)
{
	spin_lock(&wq_head->lock);
	uw_kernel_wake_locked(wq_head, mode, exclusive);
	spin_unlock(&wq_head->lock);
}

#define __wake_up(wq_head, mode, nr, key) uw_kernel_wake_queue((wq_head), (mode), (nr))
#define wake_up(wq_head) uw_kernel_wake_queue((wq_head), TASK_NORMAL, 1)
#define wake_up_nr(wq_head, nr) uw_kernel_wake_queue((wq_head), TASK_NORMAL, (nr))
#define wake_up_all(wq_head) uw_kernel_wake_queue((wq_head), TASK_NORMAL, 0)
#define wake_up_interruptible(wq_head) uw_kernel_wake_queue((wq_head), TASK_INTERRUPTIBLE, 1)
#define wake_up_interruptible_all(wq_head) uw_kernel_wake_queue((wq_head), TASK_INTERRUPTIBLE, 0)

/*
 * Waits until the condition holds, or for that many ticks. Returns the remaining ticks; at least 1
 * if the condition holds.
 */
#define uw_kernel_wait_event(wq_head, condition, timeout, exclusive) \
	UW_WAIT_EVENT(wq_head, condition, timeout, exclusive, false)
/* With `signals`, a pending signal ends the wait with -ERESTARTSYS. */
#define UW_WAIT_EVENT(wq_head, condition, timeout, exclusive, signals) \
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
			if ((signals) && signal_pending(uw_kernel_current())) { \
				uw_left = -ERESTARTSYS; \
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
/* 0, or -ERESTARTSYS. */
#define UW_WAIT_INTERRUPTIBLE(wq_head, condition, exclusive) \
	__extension__({ \
		long uw_ended = (condition) ? 1 : UW_WAIT_EVENT(wq_head, condition, MAX_SCHEDULE_TIMEOUT, exclusive, true); \
		uw_ended < 0 ? (int)uw_ended : 0; \
	})
#define wait_event_interruptible(wq_head, condition) UW_WAIT_INTERRUPTIBLE(wq_head, condition, 0)
#define wait_event_killable(wq_head, condition) (wait_event(wq_head, condition), 0)
#define wait_event_idle(wq_head, condition) wait_event(wq_head, condition)
#define wait_event_freezable(wq_head, condition) wait_event_interruptible(wq_head, condition)
#define wait_event_interruptible_timeout(wq_head, condition, timeout) \
	((condition) ? ((long)(timeout) > 0 ? (long)(timeout) : 1) : UW_WAIT_EVENT(wq_head, condition, (long)(timeout), 0, true))
#define wait_event_killable_timeout(wq_head, condition, timeout) wait_event_timeout(wq_head, condition, timeout)
#define wait_event_idle_timeout(wq_head, condition, timeout) wait_event_timeout(wq_head, condition, timeout)
#define wait_event_exclusive(wq_head, condition) \
	((void)((condition) ? 1 : uw_kernel_wait_event(wq_head, condition, MAX_SCHEDULE_TIMEOUT, WQ_FLAG_EXCLUSIVE)))
#define wait_event_interruptible_exclusive(wq_head, condition) UW_WAIT_INTERRUPTIBLE(wq_head, condition, WQ_FLAG_EXCLUSIVE)

#define wake_up_locked(wq_head) uw_kernel_wake_locked((wq_head), TASK_NORMAL, 1)
#define wake_up_all_locked(wq_head) uw_kernel_wake_locked((wq_head), TASK_NORMAL, 0)
#define wake_up_sync(wq_head) wake_up(wq_head)
#define wake_up_interruptible_nr(wq_head, nr) uw_kernel_wake_queue((wq_head), TASK_INTERRUPTIBLE, (nr))
#define wake_up_interruptible_sync(wq_head) wake_up_interruptible(wq_head)
#define wake_up_poll(wq_head, events) ((void)(events), wake_up(wq_head))
#define wake_up_interruptible_poll(wq_head, events) ((void)(events), wake_up_interruptible(wq_head))

static inline bool wq_has_single_sleeper(struct wait_queue_head *wq_head)
{
	return list_is_singular(&wq_head->head);
}

/* 0: the caller may sleep. -ERESTARTSYS: a signal is pending, and the entry is not on the queue. */
static inline long prepare_to_wait_event(struct wait_queue_head *wq_head, struct wait_queue_entry *entry,
					 unsigned int state)
{
	prepare_to_wait(wq_head, entry, state);
	if (!signal_pending_state(state, uw_kernel_current()))
		return 0;
	finish_wait(wq_head, entry);
	return -ERESTARTSYS;
}

/*
 * The loop behind all wait macros, for waits with a sleep of their own: `cmd` sleeps, for example
 * by schedule(), and __ret is the value.
 */
#define ___wait_event(wq_head, condition, state, exclusive, ret, cmd) \
	__extension__({ \
		struct wait_queue_entry __wq_entry; \
		long __ret = (ret); \
		init_wait_entry(&__wq_entry, (exclusive) ? WQ_FLAG_EXCLUSIVE : 0); \
		for (;;) { \
			prepare_to_wait(&(wq_head), &__wq_entry, (state)); \
			if (condition) \
				break; \
			cmd; \
		} \
		finish_wait(&(wq_head), &__wq_entry); \
		__ret; \
	})
/*
 * For such a wait with a timeout: whether it has ended. The value is at least 1 if the condition
 * holds.
 */
#define ___wait_cond_timeout(condition) \
	__extension__({ \
		bool uw_holds = (condition); \
		if (uw_holds && !__ret) \
			__ret = 1; \
		uw_holds || !__ret; \
	})
#define ___wait_is_interruptible(state) (((state) & (TASK_INTERRUPTIBLE | TASK_WAKEKILL)) != 0)

#define UW_WAIT_UNLOCKED(wq_head, condition, before, after) \
	((void)((condition) ? 0 : ___wait_event(wq_head, condition, TASK_UNINTERRUPTIBLE, 0, 0, before; schedule(); after)))
#define wait_event_cmd(wq_head, condition, before, after) UW_WAIT_UNLOCKED(wq_head, condition, before, after)
/*
 * The lock is held when the condition is evaluated and at the end, and released while the caller
 * sleeps.
 */
#define wait_event_lock_irq(wq_head, condition, lock) \
	UW_WAIT_UNLOCKED(wq_head, condition, spin_unlock_irq(&(lock)), spin_lock_irq(&(lock)))
#define wait_event_lock_irq_cmd(wq_head, condition, lock, cmd) \
	UW_WAIT_UNLOCKED(wq_head, condition, spin_unlock_irq(&(lock)); cmd, spin_lock_irq(&(lock)))
#define wait_event_interruptible_lock_irq(wq_head, condition, lock) (wait_event_lock_irq(wq_head, condition, lock), 0)
#define wait_event_interruptible_lock_irq_timeout(wq_head, condition, lock, timeout) \
	((condition) ? ((long)(timeout) > 0 ? (long)(timeout) : 1) : \
		       ___wait_event(wq_head, ___wait_cond_timeout(condition), TASK_INTERRUPTIBLE, 0, (long)(timeout), \
				     spin_unlock_irq(&(lock)); __ret = schedule_timeout(__ret); spin_lock_irq(&(lock))))
#define wait_event_lock_irq_timeout(wq_head, condition, lock, timeout) \
	wait_event_interruptible_lock_irq_timeout(wq_head, condition, lock, timeout)
#define wait_event_killable_exclusive(wq_head, condition) (wait_event_exclusive(wq_head, condition), 0)
#define wait_event_idle_exclusive(wq_head, condition) wait_event_exclusive(wq_head, condition)
#define wait_event_freezable_timeout(wq_head, condition, timeout) wait_event_timeout(wq_head, condition, timeout)

#ifdef __cplusplus
extern "C" {
#endif
bool kthread_should_stop(void) UW_KERNEL_NAME(kthread_should_stop);
bool kthread_should_park(void) UW_KERNEL_NAME(kthread_should_park);
/* One of a few wait queues, selected by the address. Waiters for other addresses share it. */
struct wait_queue_head *uw_kernel_var_queue(const volatile void *address);
#ifdef __cplusplus
}
#endif

/*
 * Records the wake-up in the entry, so that none is lost between two waits. Each side writes its
 * own word and then reads the other's: the sleeper writes its state and reads the flag, the waker
 * writes the flag and reads the state. Both are sequentially consistent, so at least one sees the
 * other's write.
 */
static inline int woken_wake_function(struct wait_queue_entry *entry, unsigned mode, int flags, void *key)
{
	__atomic_fetch_or(&entry->flags, WQ_FLAG_WOKEN, __ATOMIC_SEQ_CST);
	return default_wake_function(entry, mode, flags, key);
}

/*
 * Returns the remaining time. The entry's function is woken_wake_function(), and the entry is on a
 * queue.
 */
static inline long wait_woken(struct wait_queue_entry *entry, unsigned int mode, long timeout)
{
	set_current_state(mode);
	if (!(__atomic_load_n(&entry->flags, __ATOMIC_SEQ_CST) & WQ_FLAG_WOKEN) && !kthread_should_stop() &&
	    !kthread_should_park())
		timeout = schedule_timeout(timeout);
	__set_current_state(TASK_RUNNING);
	__atomic_fetch_and(&entry->flags, ~(unsigned int)WQ_FLAG_WOKEN, __ATOMIC_SEQ_CST);
	return timeout;
}

/*
 * Wait queues by the address of a variable, or of a bit's word. The waker writes the variable
 * first, followed by a full barrier.
 */
#define wait_var_event(var, condition) wait_event(*uw_kernel_var_queue(var), condition)
#define wait_var_event_timeout(var, condition, timeout) wait_event_timeout(*uw_kernel_var_queue(var), condition, timeout)
#define wait_var_event_killable(var, condition) (wait_var_event(var, condition), 0)
#define wait_var_event_interruptible(var, condition) (wait_var_event(var, condition), 0)

static inline void wake_up_var(const volatile void *var)
{
	wake_up_all(uw_kernel_var_queue(var));
}

/* Waits until the bit is clear. Returns 0. */
static inline int wait_on_bit(unsigned long *word, int bit, unsigned int mode)
{
	(void)mode;
	wait_event(*uw_kernel_var_queue(word), !test_bit_acquire((unsigned long)bit, word));
	return 0;
}

#define wait_on_bit_io(word, bit, mode) wait_on_bit((word), (bit), (mode))
/* 0, or -EAGAIN after the timeout. */
static inline int wait_on_bit_timeout(unsigned long *word, int bit, unsigned int mode, unsigned long timeout)
{
	(void)mode;
	return wait_event_timeout(*uw_kernel_var_queue(word), !test_bit_acquire((unsigned long)bit, word), (long)timeout) ?
		       0 : -EAGAIN;
}

/* Waits until the bit is clear, and sets it. Returns 0. */
static inline int wait_on_bit_lock(unsigned long *word, int bit, unsigned int mode)
{
	(void)mode;
	wait_event(*uw_kernel_var_queue(word), !test_and_set_bit_lock((unsigned long)bit, word));
	return 0;
}

static inline void wake_up_bit(const volatile void *word, int bit)
{
	(void)bit;
	wake_up_all(uw_kernel_var_queue(word));
}

static inline void clear_and_wake_up_bit(int bit, volatile unsigned long *word)
{
	clear_bit_unlock((unsigned long)bit, word);
	smp_mb__after_atomic();
	wake_up_bit(word, bit);
}

/* Sets the variable, and wakes the waiters of wait_var_event(). */
#define store_release_wake_up(var, value) \
	do { \
		smp_store_release((var), (value)); \
		smp_mb(); \
		wake_up_var(var); \
	} while (0)
#define wake_up_interruptible_sync_poll(wq_head, events) ((void)(events), wake_up_interruptible_sync(wq_head))
#define wait_event_state(wq_head, condition, state) \
	(___wait_is_interruptible(state) ? wait_event_interruptible(wq_head, condition) : \
					   (wait_event(wq_head, condition), 0))

#endif
