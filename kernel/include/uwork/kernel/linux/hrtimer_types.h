/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See hrtimer.h. */
#ifndef UWORK_KERNEL_LINUX_HRTIMER_TYPES_H
#define UWORK_KERNEL_LINUX_HRTIMER_TYPES_H

#include <linux/hrtimer.h>

#endif
