/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See timer.h. */
#ifndef UWORK_KERNEL_LINUX_TIMER_TYPES_H
#define UWORK_KERNEL_LINUX_TIMER_TYPES_H

#include <linux/timer.h>

#endif
