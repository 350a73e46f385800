/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See printk.h: nothing is left out. */
#ifndef UWORK_KERNEL_LINUX_RATELIMIT_H
#define UWORK_KERNEL_LINUX_RATELIMIT_H

#include <linux/printk.h>

#endif
