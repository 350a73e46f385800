/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See kernel.h. */
#ifndef UWORK_KERNEL_LINUX_SPRINTF_H
#define UWORK_KERNEL_LINUX_SPRINTF_H

#include <linux/kernel.h>

#endif
