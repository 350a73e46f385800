/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/unaligned.h. */
#ifndef UWORK_KERNEL_ASM_UNALIGNED_H
#define UWORK_KERNEL_ASM_UNALIGNED_H

#include <linux/unaligned.h>

#endif
