/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See kernel.h. */
#ifndef UWORK_KERNEL_LINUX_PANIC_H
#define UWORK_KERNEL_LINUX_PANIC_H

#include <linux/kernel.h>

#endif
