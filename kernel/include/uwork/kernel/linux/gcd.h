/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See math.h. */
#ifndef UWORK_KERNEL_LINUX_GCD_H
#define UWORK_KERNEL_LINUX_GCD_H

#include <linux/math.h>

#endif
