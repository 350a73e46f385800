/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/smp.h. */
#ifndef UWORK_KERNEL_ASM_SMP_H
#define UWORK_KERNEL_ASM_SMP_H

#include <linux/smp.h>

#endif
