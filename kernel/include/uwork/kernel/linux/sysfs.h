/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Output of attributes. */
#ifndef UWORK_KERNEL_LINUX_SYSFS_H
#define UWORK_KERNEL_LINUX_SYSFS_H

#include <linux/fs.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Into a buffer of PAGE_SIZE bytes. Return the number of bytes written. */
int sysfs_emit(char *buf, const char *fmt, ...) UW_KERNEL_NAME(sysfs_emit) UW_KERNEL_FORMAT(2, 3);
int sysfs_emit_at(char *buf, int at, const char *fmt, ...) UW_KERNEL_NAME(sysfs_emit_at) UW_KERNEL_FORMAT(3, 4);
#ifdef __cplusplus
}
#endif

#endif
