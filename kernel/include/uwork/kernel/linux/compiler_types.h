/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Attributes. */
#ifndef UWORK_KERNEL_LINUX_COMPILER_TYPES_H
#define UWORK_KERNEL_LINUX_COMPILER_TYPES_H

#include <linux/compiler.h>

#endif
