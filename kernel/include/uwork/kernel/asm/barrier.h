/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/compiler.h. */
#ifndef UWORK_KERNEL_ASM_BARRIER_H
#define UWORK_KERNEL_ASM_BARRIER_H

#include <linux/compiler.h>

#endif
