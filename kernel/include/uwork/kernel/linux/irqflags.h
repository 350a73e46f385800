/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Interrupts do not exist here, so these macros exclude no other thread. Timers and BH items count
 * as softirqs.
 */
#ifndef UWORK_KERNEL_LINUX_IRQFLAGS_H
#define UWORK_KERNEL_LINUX_IRQFLAGS_H

#include "../uw_kernel.h"
#include <linux/types.h>

#define local_irq_save(flags) ((void)((flags) = 0))
#define local_irq_restore(flags) ((void)(flags))
#define local_irq_disable() barrier()
#define local_irq_enable() barrier()
#define irqs_disabled() false
#define in_interrupt() in_softirq()
#define in_irq() false
#define in_hardirq() false
#define in_nmi() false
#define in_softirq() ((uw_kernel_context() & UW_KERNEL_IN_BH) != 0)
#define in_serving_softirq() in_softirq()
#define in_task() (!in_softirq())
#define in_atomic() in_softirq()

#endif
