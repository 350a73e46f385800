/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Files: the workqueue attributes by their sysfs paths, and what else there is by open(). Beside what the system has under this name. */
#ifndef UWORK_KERNEL_LINUX_FS_H
#define UWORK_KERNEL_LINUX_FS_H

/* Before what follows: in a system header, its formats would not be checked. */
#include <linux/printk.h>

/* #include_next is no ISO C, which the compiler would say. */
#pragma GCC system_header
#include_next <linux/fs.h>

#include <fcntl.h>

#include "../uw_kernel.h"
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct file {
	loff_t f_pos;
	unsigned int f_flags;
	fmode_t f_mode;
	void *private_data;
};
#define FMODE_READ ((fmode_t)1)
#define FMODE_WRITE ((fmode_t)2)
typedef void *fl_owner_t;

/*
 * Paths below /sys/bus/workqueue/devices, /sys/devices/virtual/workqueue and /sys/module/workqueue/parameters are
 * those of this process's queues (those with WQ_SYSFS). An errno in the pointer if there is no such file.
 */
struct file *filp_open(const char *path, int flags, umode_t mode) UW_KERNEL_NAME(filp_open);
int filp_close(struct file *file, fl_owner_t id) UW_KERNEL_NAME(filp_close);
ssize_t kernel_write(struct file *file, const void *buf, size_t count, loff_t *pos) UW_KERNEL_NAME(kernel_write);
ssize_t kernel_read(struct file *file, void *buf, size_t count, loff_t *pos) UW_KERNEL_NAME(kernel_read);

/* User memory is the program's memory. */
#define vfs_write(file, buf, count, pos) kernel_write((file), (buf), (count), (pos))
#define vfs_read(file, buf, count, pos) kernel_read((file), (buf), (count), (pos))
/* The new position; -ESPIPE where there is none. Attributes have one. */
loff_t vfs_llseek(struct file *file, loff_t offset, int whence) UW_KERNEL_NAME(vfs_llseek);
int vfs_fsync(struct file *file, int datasync) UW_KERNEL_NAME(vfs_fsync);
#define fput(file) ((void)filp_close((file), NULL))

#ifdef __cplusplus
}
#endif

#include <linux/stat.h>
#include "../uw_kernel_environment.h"

#endif
