/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Interrupts do not exist here, so these macros exclude no other thread. Timers and BH items count
 * as softirqs.
 */
#ifndef UWORK_KERNEL_LINUX_IRQFLAGS_H
#define UWORK_KERNEL_LINUX_IRQFLAGS_H

#include "../uw_kernel.h"
#include <linux/cleanup.h>
#include <linux/types.h>

#define local_irq_save(flags) ((void)((flags) = 0))
#define local_irq_restore(flags) ((void)(flags))
#define local_irq_disable() barrier()
#define local_irq_enable() barrier()
#define local_save_flags(flags) ((void)((flags) = 0))
#define raw_local_irq_save(flags) local_irq_save(flags)
#define raw_local_irq_restore(flags) local_irq_restore(flags)
#define raw_local_irq_disable() local_irq_disable()
#define raw_local_irq_enable() local_irq_enable()
#define raw_local_save_flags(flags) local_save_flags(flags)
#define raw_irqs_disabled() irqs_disabled()
#define irqs_disabled_flags(flags) ((void)(flags), false)
#define irqs_disabled() false
#define in_interrupt() in_softirq()
#define in_irq() false
#define in_hardirq() false
#define in_nmi() false
#define in_softirq() ((uw_kernel_context() & UW_KERNEL_IN_BH) != 0)
#define in_serving_softirq() in_softirq()
#define in_task() (!in_softirq())
#define in_atomic() in_softirq()

#ifndef __cplusplus
DEFINE_LOCK_GUARD_0(irq, local_irq_disable(), local_irq_enable(), char uw_unused)
DEFINE_LOCK_GUARD_0(irqsave, local_irq_save(_T->flags), local_irq_restore(_T->flags), unsigned long flags)
#endif

#endif
