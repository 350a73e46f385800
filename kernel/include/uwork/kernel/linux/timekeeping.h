/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See ktime.h. */
#ifndef UWORK_KERNEL_LINUX_TIMEKEEPING_H
#define UWORK_KERNEL_LINUX_TIMEKEEPING_H

#include <linux/ktime.h>

#endif
