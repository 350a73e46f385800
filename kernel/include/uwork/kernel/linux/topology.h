/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* CPU topology. */
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

enum uw_kernel_sharing {
	UW_SHARING_CORE,
	UW_SHARING_CLUSTER,
	UW_SHARING_CACHE,
	UW_SHARING_PACKAGE,
	UW_SHARING_KINDS
};

#ifdef __cplusplus
extern "C" {
#endif
/*
 * The CPUs that share this with `cpu`, as reported by the system; `cpu` alone if the system does
 * not report it. Read once.
 */
const struct cpumask *uw_kernel_sharing_mask(enum uw_kernel_sharing kind, unsigned int cpu);
/* The system's number; -1 if there is none. Caches have no number. */
int uw_kernel_sharing_id(enum uw_kernel_sharing kind, unsigned int cpu);
#ifdef __cplusplus
}
#endif

#define topology_sibling_cpumask(cpu) uw_kernel_sharing_mask(UW_SHARING_CORE, (unsigned int)(cpu))
#define topology_cluster_cpumask(cpu) uw_kernel_sharing_mask(UW_SHARING_CLUSTER, (unsigned int)(cpu))
#define topology_core_cpumask(cpu) uw_kernel_sharing_mask(UW_SHARING_PACKAGE, (unsigned int)(cpu))
#define topology_llc_cpumask(cpu) uw_kernel_sharing_mask(UW_SHARING_CACHE, (unsigned int)(cpu))
#define cpu_smt_mask(cpu) topology_sibling_cpumask(cpu)
#define cpu_llc_shared_mask(cpu) topology_llc_cpumask(cpu)
#define cpu_coregroup_mask(cpu) topology_llc_cpumask(cpu)
#define topology_core_id(cpu) uw_kernel_sharing_id(UW_SHARING_CORE, (unsigned int)(cpu))
#define topology_cluster_id(cpu) uw_kernel_sharing_id(UW_SHARING_CLUSTER, (unsigned int)(cpu))
#define topology_physical_package_id(cpu) uw_kernel_sharing_id(UW_SHARING_PACKAGE, (unsigned int)(cpu))
#define cpus_share_cache(a, b) ((a) == (b) || cpumask_test_cpu((int)(b), topology_llc_cpumask(a)))

#endif
