/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See bitmap.h. */
#ifndef UWORK_KERNEL_LINUX_FIND_H
#define UWORK_KERNEL_LINUX_FIND_H

#include <linux/bitmap.h>

#endif
