/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See topology.h. */
#ifndef UWORK_KERNEL_LINUX_SCHED_TOPOLOGY_H
#define UWORK_KERNEL_LINUX_SCHED_TOPOLOGY_H

#include <linux/topology.h>

#endif
