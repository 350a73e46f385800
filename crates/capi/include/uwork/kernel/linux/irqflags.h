/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* There are no interrupts: a thread is all there is to lock out. */
#ifndef UWORK_KERNEL_LINUX_IRQFLAGS_H
#define UWORK_KERNEL_LINUX_IRQFLAGS_H

#include <linux/types.h>

#define local_irq_save(flags) ((void)((flags) = 0))
#define local_irq_restore(flags) ((void)(flags))
#define local_irq_disable() barrier()
#define local_irq_enable() barrier()
#define irqs_disabled() false
#define in_interrupt() false
#define in_irq() false
#define in_hardirq() false
#define in_softirq() false
#define in_task() true
#define in_atomic() false

#endif
