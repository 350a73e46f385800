/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where CPUs are. */
#ifndef UWORK_KERNEL_LINUX_TOPOLOGY_H
#define UWORK_KERNEL_LINUX_TOPOLOGY_H

#include <linux/cpumask.h>
#include <linux/numa.h>
#include <linux/smp.h>

static inline int cpu_to_node(int cpu)
{
	int node = uw_cpu_node(cpu);

	return node < 0 ? 0 : node;
}

#define numa_node_id() cpu_to_node(smp_processor_id())
#define numa_mem_id() numa_node_id()
#define cpu_to_mem(cpu) cpu_to_node(cpu)
#define cpumask_of_node(node) uw_kernel_node_mask(node)

#endif
