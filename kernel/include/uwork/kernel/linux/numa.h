/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* NUMA nodes. */
#ifndef UWORK_KERNEL_LINUX_NUMA_H
#define UWORK_KERNEL_LINUX_NUMA_H

#define NUMA_NO_NODE (-1)
#define MAX_NUMNODES 64

#endif
