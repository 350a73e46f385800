/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Flags of files: the definitions of the C library. The system's header of this name has other definitions of the
 * same types, which conflict with them.
 */
#ifndef UWORK_KERNEL_LINUX_FCNTL_H
#define UWORK_KERNEL_LINUX_FCNTL_H

#include <fcntl.h>

#endif
