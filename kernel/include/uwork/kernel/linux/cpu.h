/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * CPU hotplug. The system does not wait for a process when a CPU goes offline, so these locks do
 * nothing, and cpu_online_mask is fixed from its first use on.
 */
#ifndef UWORK_KERNEL_LINUX_CPU_H
#define UWORK_KERNEL_LINUX_CPU_H

#include <linux/cpumask.h>
#include <linux/smp.h>

#define UW_CPUS_LOCK(name) \
	static inline void name(void) \
	{ \
		barrier(); \
	}
UW_CPUS_LOCK(cpus_read_lock)
UW_CPUS_LOCK(cpus_read_unlock)
UW_CPUS_LOCK(cpus_write_lock)
UW_CPUS_LOCK(cpus_write_unlock)
UW_CPUS_LOCK(get_online_cpus)
UW_CPUS_LOCK(put_online_cpus)
UW_CPUS_LOCK(lockdep_assert_cpus_held)
UW_CPUS_LOCK(cpu_hotplug_disable)
UW_CPUS_LOCK(cpu_hotplug_enable)

static inline int cpus_read_trylock(void)
{
	return 1;
}

#ifndef __cplusplus
DEFINE_LOCK_GUARD_0(cpus_read_lock, cpus_read_lock(), cpus_read_unlock(), char uw_unused)
#endif

#include <linux/cpuhotplug.h>

#endif
