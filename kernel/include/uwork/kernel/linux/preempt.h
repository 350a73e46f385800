/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A thread may be preempted at any time. Code that disables preemption in the kernel to exclude
 * other code needs a lock here.
 */
#ifndef UWORK_KERNEL_LINUX_PREEMPT_H
#define UWORK_KERNEL_LINUX_PREEMPT_H

#include <linux/irqflags.h>

#define preempt_disable() barrier()
#define preempt_enable() barrier()
#define preempt_enable_no_resched() barrier()
#define preempt_count() (in_softirq() ? 0x100 : 0)
#define preemptible() in_task()
#define migrate_disable() barrier()
#define migrate_enable() barrier()
#define local_bh_disable() barrier()
#define local_bh_enable() barrier()
#define preempt_disable_notrace() barrier()
#define preempt_enable_notrace() barrier()

#ifndef __cplusplus
DEFINE_LOCK_GUARD_0(preempt, preempt_disable(), preempt_enable(), char uw_unused)
DEFINE_LOCK_GUARD_0(preempt_notrace, preempt_disable(), preempt_enable(), char uw_unused)
DEFINE_LOCK_GUARD_0(migrate, migrate_disable(), migrate_enable(), char uw_unused)
#endif

#endif
