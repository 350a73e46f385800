/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * CPU hotplug. The system does not wait for a process when a CPU goes offline, so these locks do
 * nothing.
 */
#ifndef UWORK_KERNEL_LINUX_CPU_H
#define UWORK_KERNEL_LINUX_CPU_H

#include <linux/cpumask.h>
#include <linux/smp.h>

#define cpus_read_lock() barrier()
#define cpus_read_unlock() barrier()
#define cpus_read_trylock() 1
#define get_online_cpus() barrier()
#define put_online_cpus() barrier()
#define lockdep_assert_cpus_held() ((void)0)

#endif
