/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Read sides and grace periods. */
#ifndef UWORK_KERNEL_LINUX_RCUPDATE_H
#define UWORK_KERNEL_LINUX_RCUPDATE_H

#include "../uw_kernel.h"
#include "../uw_kernel_slab.h"
#include <linux/cleanup.h>
#include <linux/compiler.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Larger than the kernel's, because it contains an item: either for a grace period, or for task
 * work (task_work.h).
 */
struct rcu_head {
	union {
		struct uw_rcu_work uw_item;
		struct uw_task_work uw_task_item;
	};
	void (*func)(struct rcu_head *head);
	/* Of the grace period that call_rcu() began. */
	unsigned long uw_number;
};
#define callback_head rcu_head

void call_rcu(struct rcu_head *head, rcu_callback_t func) UW_KERNEL_NAME(call_rcu);
void uw_kernel_kfree_rcu(struct rcu_head *head, void *ptr);
void synchronize_rcu(void) UW_KERNEL_NAME(synchronize_rcu);
/*
 * Waits until the callbacks of all earlier call_rcu() have run, and the items of all earlier
 * queue_rcu_work() are queued.
 */
void rcu_barrier(void) UW_KERNEL_NAME(rcu_barrier);

/*
 * Grace periods that are polled. The state that the first two return has passed when a whole grace
 * period has ended since. The first begins none: the next one of call_rcu(), kfree_rcu(),
 * synchronize_rcu() or rcu_barrier() will do. Those of queue_rcu_work() are not counted.
 */
unsigned long get_state_synchronize_rcu(void) UW_KERNEL_NAME(get_state_synchronize_rcu);
unsigned long start_poll_synchronize_rcu(void) UW_KERNEL_NAME(start_poll_synchronize_rcu);
bool poll_state_synchronize_rcu(unsigned long state) UW_KERNEL_NAME(poll_state_synchronize_rcu);
/* Waits for a grace period if the state has not passed. */
void cond_synchronize_rcu(unsigned long state) UW_KERNEL_NAME(cond_synchronize_rcu);

/* A state that has passed. */
static inline unsigned long get_completed_synchronize_rcu(void)
{
	return 0;
}

static inline void call_rcu_hurry(struct rcu_head *head, rcu_callback_t func)
{
	call_rcu(head, func);
}

static inline void synchronize_rcu_expedited(void)
{
	synchronize_rcu();
}

#define cond_synchronize_rcu_expedited(state) cond_synchronize_rcu(state)
#define start_poll_synchronize_rcu_expedited() start_poll_synchronize_rcu()
#define same_state_synchronize_rcu(one, other) ((one) == (other))

#define kfree_rcu(ptr, field) uw_kernel_kfree_rcu(&(ptr)->field, (ptr))

static inline void rcu_read_lock(void)
{
	uw_rcu_read_lock();
}

static inline void rcu_read_unlock(void)
{
	uw_rcu_read_unlock();
}

static inline void synchronize_net(void)
{
	synchronize_rcu();
}

/* For assertions: how a read side began makes no difference. */
#define rcu_read_lock_held() uw_rcu_is_read_locked()
#define rcu_read_lock_bh_held() uw_rcu_is_read_locked()
#define rcu_read_lock_sched_held() uw_rcu_is_read_locked()
#define rcu_read_lock_any_held() uw_rcu_is_read_locked()
#define rcu_is_watching() true
#define rcu_dereference(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define rcu_dereference_protected(p, condition) (p)
#define rcu_dereference_check(p, condition) rcu_dereference(p)
#define rcu_dereference_raw(p) rcu_dereference(p)
#define rcu_dereference_bh(p) rcu_dereference(p)
#define rcu_dereference_sched(p) rcu_dereference(p)
#define rcu_dereference_bh_check(p, condition) rcu_dereference(p)
#define rcu_read_lock_bh() rcu_read_lock()
#define rcu_read_unlock_bh() rcu_read_unlock()
#define rcu_read_lock_sched() rcu_read_lock()
#define rcu_read_unlock_sched() rcu_read_unlock()
#define rcu_pointer_handoff(p) (p)
#define unrcu_pointer(p) (p)
#define RCU_INITIALIZER(v) (v)
#define RCU_LOCKDEP_WARN(condition, text) ((void)0)
#define init_rcu_head(head) ((void)(head))
#define rcu_head_init(head) ((void)(head))
#define rcu_expedite_gp() ((void)0)
#define rcu_unexpedite_gp() ((void)0)
#define rcu_dereference_raw_check(p) rcu_dereference(p)
#define destroy_rcu_head(head) ((void)(head))
#define init_rcu_head_on_stack(head) ((void)(head))
#define destroy_rcu_head_on_stack(head) ((void)(head))
#define cond_resched_rcu() (rcu_read_unlock(), rcu_read_lock())
#define kvfree_rcu(ptr, field) kfree_rcu(ptr, field)
#define kfree_rcu_mightsleep(ptr) (synchronize_rcu(), uw_kernel_free(ptr))
#define kvfree_rcu_mightsleep(ptr) kfree_rcu_mightsleep(ptr)
#define rcu_access_pointer(p) __atomic_load_n(&(p), __ATOMIC_RELAXED)
#define rcu_assign_pointer(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
#define RCU_INIT_POINTER(p, v) ((p) = (v))
#define rcu_replace_pointer(p, v, condition) __atomic_exchange_n(&(p), (v), __ATOMIC_ACQ_REL)

#ifdef __cplusplus
}
#endif

#ifndef __cplusplus
DEFINE_LOCK_GUARD_0(rcu, rcu_read_lock(), rcu_read_unlock(), char uw_unused)
#endif

#endif
