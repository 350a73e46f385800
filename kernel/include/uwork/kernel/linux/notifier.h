/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Chains of functions that are called for an event, those of the highest priority first. */
#ifndef UWORK_KERNEL_LINUX_NOTIFIER_H
#define UWORK_KERNEL_LINUX_NOTIFIER_H

#include <linux/rcupdate.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>

struct notifier_block;

typedef int (*notifier_fn_t)(struct notifier_block *nb, unsigned long action, void *data);

struct notifier_block {
	notifier_fn_t notifier_call;
	struct notifier_block *next;
	int priority;
};

/* Functions run in an RCU read side, and must not wait. */
struct atomic_notifier_head {
	spinlock_t lock;
	struct notifier_block *head;
};

/* Functions may wait. They must not register in the chain that calls them. */
struct blocking_notifier_head {
	struct rw_semaphore rwsem;
	struct notifier_block *head;
};

/* The caller excludes changes during a call. */
struct raw_notifier_head {
	struct notifier_block *head;
};

struct srcu_notifier_head {
	struct mutex mutex;
	struct srcu_struct srcu;
	struct notifier_block *head;
};

#define NOTIFY_DONE 0x0000
#define NOTIFY_OK 0x0001
#define NOTIFY_STOP_MASK 0x8000
#define NOTIFY_BAD (NOTIFY_STOP_MASK | 0x0002)
#define NOTIFY_STOP (NOTIFY_OK | NOTIFY_STOP_MASK)

#define ATOMIC_NOTIFIER_INIT(name) { __SPIN_LOCK_UNLOCKED((name).lock), NULL }
#define BLOCKING_NOTIFIER_INIT(name) { __RWSEM_INITIALIZER((name).rwsem), NULL }
#define RAW_NOTIFIER_INIT(name) { NULL }
#define SRCU_NOTIFIER_INIT(name, pcpu) { __MUTEX_INITIALIZER((name).mutex), UW_SRCU_INIT, NULL }
#define ATOMIC_NOTIFIER_HEAD(name) struct atomic_notifier_head name = ATOMIC_NOTIFIER_INIT(name)
#define BLOCKING_NOTIFIER_HEAD(name) struct blocking_notifier_head name = BLOCKING_NOTIFIER_INIT(name)
#define RAW_NOTIFIER_HEAD(name) struct raw_notifier_head name = RAW_NOTIFIER_INIT(name)
#define SRCU_NOTIFIER_HEAD(name) struct srcu_notifier_head name = SRCU_NOTIFIER_INIT(name, 0)
#define SRCU_NOTIFIER_HEAD_STATIC(name) static SRCU_NOTIFIER_HEAD(name)

#define ATOMIC_INIT_NOTIFIER_HEAD(name) (spin_lock_init(&(name)->lock), (void)((name)->head = NULL))
#define BLOCKING_INIT_NOTIFIER_HEAD(name) (init_rwsem(&(name)->rwsem), (void)((name)->head = NULL))
#define RAW_INIT_NOTIFIER_HEAD(name) ((void)((name)->head = NULL))

/* An errno value in the result of a function, which also ends the call of the chain. */
static inline int notifier_from_errno(int err)
{
	return err ? NOTIFY_STOP_MASK | (NOTIFY_OK - err) : NOTIFY_OK;
}

static inline int notifier_to_errno(int result)
{
	result &= ~NOTIFY_STOP_MASK;
	return result > NOTIFY_OK ? NOTIFY_OK - result : 0;
}

/* -EEXIST if the block is in the chain; with `unique`, -EBUSY if another one has its priority. */
static inline int uw_notifier_add(struct notifier_block **at, struct notifier_block *nb, bool unique)
{
	for (; *at && (*at)->priority >= nb->priority; at = &(*at)->next) {
		if (*at == nb)
			return -EEXIST;
		if (unique && (*at)->priority == nb->priority)
			return -EBUSY;
	}
	nb->next = *at;
	rcu_assign_pointer(*at, nb);
	return 0;
}

static inline int uw_notifier_remove(struct notifier_block **at, struct notifier_block *nb)
{
	for (; *at; at = &(*at)->next) {
		if (*at == nb) {
			rcu_assign_pointer(*at, nb->next);
			return 0;
		}
	}
	return -ENOENT;
}

/* The result of the last function called. */
static inline int uw_notifier_call(struct notifier_block **head, unsigned long action, void *data)
{
	struct notifier_block *nb = rcu_dereference(*head);
	int result = NOTIFY_DONE;

	while (nb) {
		/* The block may leave the chain in its own function. */
		struct notifier_block *next = rcu_dereference(nb->next);

		result = nb->notifier_call(nb, action, data);
		if (result & NOTIFY_STOP_MASK)
			break;
		nb = next;
	}
	return result;
}

/*
 * If a function stops the call, tells the functions that were called before it of the second
 * action. The result is that of the call that was stopped.
 */
static inline int uw_notifier_call_robust(struct notifier_block **head, unsigned long up, unsigned long down, void *data)
{
	struct notifier_block *nb = rcu_dereference(*head), *stopped = NULL, *undo;
	int result = NOTIFY_DONE;

	while (nb && !stopped) {
		struct notifier_block *next = rcu_dereference(nb->next);

		result = nb->notifier_call(nb, up, data);
		stopped = result & NOTIFY_STOP_MASK ? nb : NULL;
		nb = next;
	}
	for (undo = stopped ? rcu_dereference(*head) : NULL; undo && undo != stopped; undo = nb) {
		nb = rcu_dereference(undo->next);
		if (undo->notifier_call(undo, down, data) & NOTIFY_STOP_MASK)
			break;
	}
	return result;
}

/* The functions of one kind of chain: how a change excludes others, and how a call is protected. */
#define UW_NOTIFIER_CHANGES(kind, lock_it, unlock_it, wait_it) \
	static inline int uw_##kind##_notifier_add(struct kind##_notifier_head *nh, struct notifier_block *nb, bool unique) \
	{ \
		int error; \
		lock_it; \
		error = uw_notifier_add(&nh->head, nb, unique); \
		unlock_it; \
		return error; \
	} \
	static inline int kind##_notifier_chain_register(struct kind##_notifier_head *nh, struct notifier_block *nb) \
	{ \
		return uw_##kind##_notifier_add(nh, nb, false); \
	} \
	static inline int kind##_notifier_chain_unregister(struct kind##_notifier_head *nh, struct notifier_block *nb) \
	{ \
		int error; \
		lock_it; \
		error = uw_notifier_remove(&nh->head, nb); \
		unlock_it; \
		wait_it; \
		return error; \
	}
#define UW_NOTIFIER_CALLS(kind, enter, leave) \
	static inline int kind##_notifier_call_chain(struct kind##_notifier_head *nh, unsigned long action, void *data) \
	{ \
		int result; \
		enter; \
		result = uw_notifier_call(&nh->head, action, data); \
		leave; \
		return result; \
	}
UW_NOTIFIER_CHANGES(atomic, spin_lock(&nh->lock), spin_unlock(&nh->lock), synchronize_rcu())
UW_NOTIFIER_CALLS(atomic, rcu_read_lock(), rcu_read_unlock())
UW_NOTIFIER_CHANGES(blocking, down_write(&nh->rwsem), up_write(&nh->rwsem), (void)0)
UW_NOTIFIER_CALLS(blocking, down_read(&nh->rwsem), up_read(&nh->rwsem))
UW_NOTIFIER_CHANGES(raw, (void)0, (void)0, (void)0)
UW_NOTIFIER_CALLS(raw, (void)0, (void)0)
UW_NOTIFIER_CHANGES(srcu, mutex_lock(&nh->mutex), mutex_unlock(&nh->mutex), synchronize_srcu(&nh->srcu))
UW_NOTIFIER_CALLS(srcu, int index = srcu_read_lock(&nh->srcu), srcu_read_unlock(&nh->srcu, index))

static inline int blocking_notifier_call_chain_robust(struct blocking_notifier_head *nh, unsigned long up,
						       unsigned long down, void *data)
{
	int result;

	down_read(&nh->rwsem);
	result = uw_notifier_call_robust(&nh->head, up, down, data);
	up_read(&nh->rwsem);
	return result;
}

static inline int raw_notifier_call_chain_robust(struct raw_notifier_head *nh, unsigned long up, unsigned long down,
						 void *data)
{
	return uw_notifier_call_robust(&nh->head, up, down, data);
}

static inline int atomic_notifier_chain_register_unique_prio(struct atomic_notifier_head *nh, struct notifier_block *nb)
{
	return uw_atomic_notifier_add(nh, nb, true);
}

static inline int blocking_notifier_chain_register_unique_prio(struct blocking_notifier_head *nh,
								struct notifier_block *nb)
{
	return uw_blocking_notifier_add(nh, nb, true);
}

static inline void srcu_init_notifier_head(struct srcu_notifier_head *nh)
{
	mutex_init(&nh->mutex);
	init_srcu_struct(&nh->srcu);
	nh->head = NULL;
}

#define srcu_cleanup_notifier_head(nh) cleanup_srcu_struct(&(nh)->srcu)

#endif
