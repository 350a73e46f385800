/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See jump_label.h. */
#ifndef UWORK_KERNEL_LINUX_STATIC_KEY_H
#define UWORK_KERNEL_LINUX_STATIC_KEY_H

#include <linux/jump_label.h>

#endif
