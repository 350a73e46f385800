/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Attributes. */
#ifndef UWORK_KERNEL_LINUX_COMPILER_ATTRIBUTES_H
#define UWORK_KERNEL_LINUX_COMPILER_ATTRIBUTES_H

#include <linux/compiler.h>

#endif
