/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/math64.h. */
#ifndef UWORK_KERNEL_ASM_DIV64_H
#define UWORK_KERNEL_ASM_DIV64_H

#include <linux/math64.h>

#endif
