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

#define call_rcu_hurry(head, func) call_rcu((head), (func))
static inline void synchronize_rcu_expedited(void)
{
	synchronize_rcu();
}

#define kfree_rcu(ptr, field) uw_kernel_kfree_rcu(&(ptr)->field, (ptr))

static inline void rcu_read_lock(void)
{
	uw_rcu_read_lock();
}

static inline void rcu_read_unlock(void)
{
	uw_rcu_read_unlock();
}

#define rcu_read_lock_held() uw_rcu_is_read_locked()
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
#define destroy_rcu_head(head) ((void)(head))
#define init_rcu_head_on_stack(head) ((void)(head))
#define destroy_rcu_head_on_stack(head) ((void)(head))
#define synchronize_net() synchronize_rcu()
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
