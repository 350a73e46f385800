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
#define cpus_write_lock() barrier()
#define cpus_write_unlock() barrier()
#define get_online_cpus() barrier()
#define put_online_cpus() barrier()
#define lockdep_assert_cpus_held() ((void)0)

#ifndef __cplusplus
DEFINE_LOCK_GUARD_0(cpus_read_lock, cpus_read_lock(), cpus_read_unlock(), char uw_unused)
#endif

#endif
