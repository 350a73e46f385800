/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* NUMA nodes that have CPUs. */
#ifndef UWORK_KERNEL_LINUX_NODEMASK_H
#define UWORK_KERNEL_LINUX_NODEMASK_H

#include <linux/topology.h>

#define node_online(node) (!cpumask_empty(cpumask_of_node(node)))
#define for_each_online_node(node) \
	for ((node) = 0; (node) < MAX_NUMNODES; (node)++) \
		if (!node_online(node)) { \
		} else
static inline int num_online_nodes(void)
{
	int node, count = 0;

	for (node = 0; node < MAX_NUMNODES; node++)
		count += node_online(node);
	return count;
}

/* MAX_NUMNODES if there is none. */
static inline int next_online_node(int node)
{
	while (++node < MAX_NUMNODES && !node_online(node))
		;
	return node;
}

#define first_online_node next_online_node(-1)
#define num_possible_nodes() num_online_nodes()
#define for_each_node(node) for_each_online_node(node)

#endif
