/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/sched.h. */
#ifndef UWORK_KERNEL_ASM_CURRENT_H
#define UWORK_KERNEL_ASM_CURRENT_H

#include <linux/sched.h>

#endif
