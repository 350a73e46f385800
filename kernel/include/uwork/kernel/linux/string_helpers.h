/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See string.h. */
#ifndef UWORK_KERNEL_LINUX_STRING_HELPERS_H
#define UWORK_KERNEL_LINUX_STRING_HELPERS_H

#include <linux/string.h>

#endif
