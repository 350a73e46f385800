/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See spinlock.h. */
#ifndef UWORK_KERNEL_LINUX_RWLOCK_H
#define UWORK_KERNEL_LINUX_RWLOCK_H

#include <linux/spinlock.h>

#endif
