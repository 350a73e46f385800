/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* CPU isolation: the library never uses isolated CPUs anyway. */
#ifndef UWORK_KERNEL_LINUX_SCHED_ISOLATION_H
#define UWORK_KERNEL_LINUX_SCHED_ISOLATION_H

#include <linux/cpumask.h>

#define housekeeping_cpumask(type) cpu_online_mask
#define housekeeping_enabled(type) false

#endif
