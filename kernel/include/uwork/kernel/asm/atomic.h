/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/atomic.h. */
#ifndef UWORK_KERNEL_ASM_ATOMIC_H
#define UWORK_KERNEL_ASM_ATOMIC_H

#include <linux/atomic.h>

#endif
