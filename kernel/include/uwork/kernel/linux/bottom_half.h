/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See preempt.h. */
#ifndef UWORK_KERNEL_LINUX_BOTTOM_HALF_H
#define UWORK_KERNEL_LINUX_BOTTOM_HALF_H

#include <linux/preempt.h>

#endif
