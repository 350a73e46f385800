/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See preempt.h. */
#ifndef UWORK_KERNEL_LINUX_HARDIRQ_H
#define UWORK_KERNEL_LINUX_HARDIRQ_H

#include <linux/preempt.h>

#endif
