/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See sched.h. */
#ifndef UWORK_KERNEL_LINUX_SCHED_RT_H
#define UWORK_KERNEL_LINUX_SCHED_RT_H

#include <linux/sched.h>

#endif
