/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/topology.h. */
#ifndef UWORK_KERNEL_ASM_TOPOLOGY_H
#define UWORK_KERNEL_ASM_TOPOLOGY_H

#include <linux/topology.h>

#endif
