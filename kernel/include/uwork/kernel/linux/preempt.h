/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A thread may be preempted at any time. Code that disables preemption in the kernel to exclude
 * other code needs a lock here. But the thread keeps its CPU's number until it enables preemption:
 * smp_processor_id() and this_cpu_ptr() refer to that CPU, also after a migration.
 */
#ifndef UWORK_KERNEL_LINUX_PREEMPT_H
#define UWORK_KERNEL_LINUX_PREEMPT_H

#include <linux/irqflags.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Fixes the number of the caller's CPU. Calls nest. */
void uw_kernel_keep_cpu(void);
/* Ends one of these calls. */
void uw_kernel_release_cpu(void);
#ifdef __cplusplus
}
#endif

#define preempt_disable() uw_kernel_keep_cpu()
#define preempt_enable() uw_kernel_release_cpu()
#define preempt_enable_no_resched() uw_kernel_release_cpu()
#define preempt_count() (in_softirq() ? 0x100 : 0)
#define preemptible() in_task()
#define migrate_disable() uw_kernel_keep_cpu()
#define migrate_enable() uw_kernel_release_cpu()

static inline void local_bh_disable(void)
{
	barrier();
}

static inline void local_bh_enable(void)
{
	barrier();
}

#define preempt_disable_notrace() preempt_disable()
#define preempt_enable_notrace() preempt_enable()

#ifndef __cplusplus
DEFINE_LOCK_GUARD_0(preempt, preempt_disable(), preempt_enable(), char uw_unused)
DEFINE_LOCK_GUARD_0(preempt_notrace, preempt_disable(), preempt_enable(), char uw_unused)
DEFINE_LOCK_GUARD_0(migrate, migrate_disable(), migrate_enable(), char uw_unused)
#endif

#endif
