/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Output of attributes. */
#ifndef UWORK_KERNEL_LINUX_SYSFS_H
#define UWORK_KERNEL_LINUX_SYSFS_H

#include <linux/fs.h>

#define sysfs_emit_at(buf, at, ...) scnprintf((buf) + (at), 4096 - (size_t)(at), __VA_ARGS__)
#define sysfs_emit(buf, ...) scnprintf((buf), 4096, __VA_ARGS__)

#endif
