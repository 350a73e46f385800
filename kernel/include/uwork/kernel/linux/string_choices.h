/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See string.h. */
#ifndef UWORK_KERNEL_LINUX_STRING_CHOICES_H
#define UWORK_KERNEL_LINUX_STRING_CHOICES_H

#include <linux/string.h>

#endif
