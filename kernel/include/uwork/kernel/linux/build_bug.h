/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See bug.h. */
#ifndef UWORK_KERNEL_LINUX_BUILD_BUG_H
#define UWORK_KERNEL_LINUX_BUILD_BUG_H

#include <linux/bug.h>

#endif
