/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The watchdogs: only the one for workqueues exists here. */
#ifndef UWORK_KERNEL_LINUX_NMI_H
#define UWORK_KERNEL_LINUX_NMI_H

#include <linux/smp.h>
#include <linux/workqueue.h>

static inline void touch_softlockup_watchdog(void)
{
	wq_watchdog_touch(raw_smp_processor_id());
}

#define touch_nmi_watchdog() touch_softlockup_watchdog()
#define touch_all_softlockup_watchdogs() wq_watchdog_touch(-1)

#endif
