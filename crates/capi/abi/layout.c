// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Prints the parts of the interface that are compiled into programs: sizes, offsets and values of
 * uwork.h and of the kernel-compatible headers.
 */
#include <stdio.h>

#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/mutex.h>
#include <linux/pwlocks.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <uwork.h>

#define SIZE(type) printf("%-32s size %3zu align %2zu\n", #type, sizeof(type), _Alignof(type))
#define OFFSET(type, member) printf("%-32s at   %3zu\n", #type "." #member, offsetof(type, member))
#define NUMBER(name) printf("%-32s is   %#llx\n", #name, (unsigned long long)(name))

int main(void)
{
	SIZE(struct uw_work);
	SIZE(struct uw_delayed_work);
	SIZE(struct uw_rcu_work);
	SIZE(struct uw_task_work);
	SIZE(struct uw_queue_attrs);
	SIZE(struct uw_percpu_work);
	SIZE(struct uw_percpu_cache_stats);
	SIZE(struct uw_times);
	SIZE(struct uw_queue_counters);
	SIZE(struct uw_function_counters);
	SIZE(struct uw_counters);
	OFFSET(struct uw_work, func);
	OFFSET(struct uw_percpu_work, cpu);
	OFFSET(struct uw_task_work, func);
	OFFSET(struct uw_queue_attrs, flags);
	OFFSET(struct uw_queue_attrs, nice);
	OFFSET(struct uw_queue_attrs, scope);
	OFFSET(struct uw_queue_attrs, dedicated);
	OFFSET(struct uw_queue_attrs, cpumask);
	OFFSET(struct uw_queue_attrs, cpumask_bytes);
	SIZE(struct uw_setup);
	OFFSET(struct uw_setup, blocking_tier);
	OFFSET(struct uw_setup, percpu_mode);
	OFFSET(struct uw_setup, power);
	OFFSET(struct uw_setup, pool_workers_max);
	OFFSET(struct uw_setup, stack_size);
	OFFSET(struct uw_queue_counters, run_times);
	OFFSET(struct uw_function_counters, waits);
	OFFSET(struct uw_counters, functions);
	SIZE(struct uw_thread);
	OFFSET(struct uw_thread, name);
	OFFSET(struct uw_thread, queue);
	OFFSET(struct uw_thread, kind);
	NUMBER(UW_THREAD_RESCUER);
	NUMBER(UW_THREAD_HELPER);
	NUMBER(UW_TIER_DECLARED);
	NUMBER(UW_TIER_STANDBY);
	NUMBER(UW_PERCPU_ASYMMETRIC);
	SIZE(struct work_struct);
	SIZE(struct delayed_work);
	SIZE(struct rcu_work);
	SIZE(struct timer_list);
	SIZE(pw_lock_t);
	SIZE(struct pw_struct);
	SIZE(struct kthread_work);
	SIZE(struct kthread_delayed_work);
	SIZE(struct kthread_worker);
	SIZE(struct workqueue_attrs);
	SIZE(struct completion);
	SIZE(struct rcu_head);
	SIZE(struct task_struct);
	SIZE(struct cpumask);
	NUMBER(UW_NOWHERE);
	NUMBER(UW_MARK_DEFERRABLE);
	NUMBER(UW_SCOPE_SYSTEM);
	NUMBER(UW_SYSTEM_BH_HIGHPRI);
	NUMBER(UW_ORDERED);
	NUMBER(UW_NOTIFY_SIGNAL);
	NUMBER(UW_DELIVERY_SIGNAL);
	NUMBER(UW_KERNEL_RULES);
	NUMBER(uw_kernel_token_system_bh_wq);
	NUMBER(WQ_AFFN_SYSTEM);
	NUMBER(__WQ_ORDERED);
	return 0;
}
