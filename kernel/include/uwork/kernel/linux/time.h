/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See ktime.h. */
#ifndef UWORK_KERNEL_LINUX_TIME_H
#define UWORK_KERNEL_LINUX_TIME_H

#include <linux/ktime.h>

#endif
