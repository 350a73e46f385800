/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Freezing of tasks: a program's kthreads are never frozen. */
#ifndef UWORK_KERNEL_LINUX_FREEZER_H
#define UWORK_KERNEL_LINUX_FREEZER_H

#include <linux/wait.h>

#define set_freezable() ((void)0)
#define try_to_freeze() false
#define freezing(task) false

#endif
