/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Files: the workqueue attributes under their sysfs paths, and all other files by open(). Includes
 * the system's header of the same name.
 */
#ifndef UWORK_KERNEL_LINUX_FS_H
#define UWORK_KERNEL_LINUX_FS_H

/* Included before the pragma below: the compiler does not check formats in a system header. */
#include <linux/printk.h>

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <linux/fs.h>

#include <linux/fcntl.h>

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
 * Paths below /sys/bus/workqueue/devices, /sys/devices/virtual/workqueue and
 * /sys/module/workqueue/parameters name the attributes of this process's queues with WQ_SYSFS. If
 * there is no such file, the pointer is an ERR_PTR().
 */
struct file *filp_open(const char *path, int flags, umode_t mode) UW_KERNEL_NAME(filp_open);
int filp_close(struct file *file, fl_owner_t id) UW_KERNEL_NAME(filp_close);
ssize_t kernel_write(struct file *file, const void *buf, size_t count, loff_t *pos) UW_KERNEL_NAME(kernel_write);
ssize_t kernel_read(struct file *file, void *buf, size_t count, loff_t *pos) UW_KERNEL_NAME(kernel_read);

/* User memory is the program's own memory. */
#define vfs_write(file, buf, count, pos) kernel_write((file), (buf), (count), (pos))
#define vfs_read(file, buf, count, pos) kernel_read((file), (buf), (count), (pos))
/* The new position; -ESPIPE if the file has none. Attributes have one. */
loff_t vfs_llseek(struct file *file, loff_t offset, int whence) UW_KERNEL_NAME(vfs_llseek);
int vfs_fsync(struct file *file, int datasync) UW_KERNEL_NAME(vfs_fsync);
#define fput(file) ((void)filp_close((file), NULL))

/*
 * For the read function of a file whose content is in memory: copies what is left behind *pos, and
 * moves it. Returns the number of bytes.
 */
static inline ssize_t simple_read_from_buffer(void __user *to, size_t count, loff_t *pos, const void *from,
					      size_t available)
{
	loff_t at = *pos;

	if (at < 0)
		return -EINVAL;
	if ((size_t)at >= available || count == 0)
		return 0;
	if (count > available - (size_t)at)
		count = available - (size_t)at;
	memcpy(to, (const char *)from + at, count);
	*pos = at + (loff_t)count;
	return (ssize_t)count;
}

static inline ssize_t simple_write_to_buffer(void *to, size_t available, loff_t *pos, const void __user *from,
					     size_t count)
{
	loff_t at = *pos;

	if (at < 0)
		return -EINVAL;
	if ((size_t)at >= available || count == 0)
		return 0;
	if (count > available - (size_t)at)
		count = available - (size_t)at;
	memcpy((char *)to + at, from, count);
	*pos = at + (loff_t)count;
	return (ssize_t)count;
}

#ifdef __cplusplus
}
#endif

#include <linux/stat.h>
#include "../uw_kernel_environment.h"

#endif
