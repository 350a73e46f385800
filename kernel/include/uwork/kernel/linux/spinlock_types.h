/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See spinlock.h. */
#ifndef UWORK_KERNEL_LINUX_SPINLOCK_TYPES_H
#define UWORK_KERNEL_LINUX_SPINLOCK_TYPES_H

#include <linux/spinlock.h>

#endif
