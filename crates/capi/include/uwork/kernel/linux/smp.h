/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* This CPU. */
#ifndef UWORK_KERNEL_LINUX_SMP_H
#define UWORK_KERNEL_LINUX_SMP_H

#include <linux/cpumask.h>
#include <linux/preempt.h>

/* Out of date as soon as it is known, unless the thread is bound to one. */
#define raw_smp_processor_id() uw_kernel_this_cpu()
#define smp_processor_id() uw_kernel_this_cpu()
#define get_cpu() uw_kernel_this_cpu()
#define put_cpu() barrier()

#endif
