/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Limits of resources: the definitions of the C library. The system's header of this name has other definitions of the
 * same types, which conflict with them.
 */
#ifndef UWORK_KERNEL_LINUX_RESOURCE_H
#define UWORK_KERNEL_LINUX_RESOURCE_H

#include <sys/resource.h>

#endif
