/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See kernel.h. */
#ifndef UWORK_KERNEL_LINUX_KSTRTOX_H
#define UWORK_KERNEL_LINUX_KSTRTOX_H

#include <linux/kernel.h>

#endif
