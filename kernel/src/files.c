/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Files: the attribute tree under the kernel's paths, and the system's files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>
#include "cancel.h"

#define ATTRIBUTE_MAX 4096

/* The object behind the struct file that filp_open() returns. */
struct opened {
	struct file file;
	/* -1 for an attribute. */
	int fd;
	/* The identity of a file. */
	dev_t device;
	ino_t inode;
	char path[256];
};

static struct opened *opened(struct file *file)
{
	return UW_CONTAINER_OF(file, struct opened, file);
}

/*
 * Whether the program has closed the file: one that closes all its descriptors does not know of this one. Its next file
 * may have the number.
 */
static bool is_lost(const struct opened *of)
{
	struct stat now;

	return of->fd >= 0 &&
	       (fstat(of->fd, &now) != 0 || now.st_dev != of->device || now.st_ino != of->inode);
}

/*
 * The kernel's paths of parts of the tree. Later entries also match paths of earlier ones, so the
 * search continues after a match without an attribute.
 */
static const struct {
	const char *there;
	const char *here;
} places[] = {
	{ "/sys/bus/workqueue/devices/", "devices/" },
	{ "/sys/devices/virtual/workqueue/", "devices/" },
	{ "/sys/devices/virtual/workqueue/", "" },
	{ "/sys/module/workqueue/parameters/", "module/parameters/" },
};

/*
 * Writes the path within the tree to `here`. Returns 1 if that attribute exists, 0 if it does not,
 * and -1 if the path is outside of the tree.
 */
static int attribute(const char *path, char *here, size_t size)
{
	int is_ours = -1;
	size_t index;

	for (index = 0; index < ARRAY_SIZE(places); index++) {
		size_t prefix = strlen(places[index].there);
		char value[1];

		if (strncmp(path, places[index].there, prefix) != 0)
			continue;
		is_ours = 0;
		snprintf(here, size, "%s%s", places[index].here, path + prefix);
		if (uw_sysfs_get(here, value, sizeof(value)) >= 0)
			return 1;
	}
	return is_ours;
}

struct file *filp_open(const char *path, int flags, umode_t mode)
{
	struct opened *new = calloc(1, sizeof(*new));
	int access = flags & O_ACCMODE;
	struct stat identity;
	int error;
	UW_HOLD_CANCEL_OFF;

	if (!new)
		return ERR_PTR(-ENOMEM);
	new->file.f_flags = (unsigned int)flags;
	new->file.f_mode = (access != O_WRONLY ? FMODE_READ : 0) | (access != O_RDONLY ? FMODE_WRITE : 0);
	new->fd = -1;
	switch (attribute(path, new->path, sizeof(new->path))) {
	case 1:
		return &new->file;
	case 0:
		error = ENOENT;
		break;
	default:
		new->fd = open(path, flags | O_CLOEXEC, mode);
		if (new->fd >= 0 && fstat(new->fd, &identity) == 0) {
			new->device = identity.st_dev;
			new->inode = identity.st_ino;
			return &new->file;
		}
		error = errno;
		if (new->fd >= 0)
			close(new->fd);
	}
	free(new);
	return ERR_PTR(-error);
}

int filp_close(struct file *file, fl_owner_t id)
{
	UW_HOLD_CANCEL_OFF;
	struct opened *of = opened(file);
	int error = is_lost(of) ? -EBADF : of->fd >= 0 && close(of->fd) != 0 ? -errno : 0;

	(void)id;
	free(of);
	return error;
}

loff_t vfs_llseek(struct file *file, loff_t offset, int whence)
{
	struct opened *of = opened(file);

	if (is_lost(of))
		return -EBADF;
	if (of->fd >= 0) {
		/* The position of kernel_read() is f_pos only, and not the descriptor's. */
		if (whence == SEEK_CUR) {
			offset += file->f_pos;
			whence = SEEK_SET;
		}
		offset = lseek(of->fd, offset, whence);
		if (offset < 0)
			return -errno;
	} else {
		if (whence == SEEK_CUR)
			offset += file->f_pos;
		else if (whence != SEEK_SET)
			return -EINVAL;
		if (offset < 0)
			return -EINVAL;
	}
	file->f_pos = offset;
	return offset;
}

int vfs_fsync(struct file *file, int datasync)
{
	struct opened *of = opened(file);
	int result;

	if (of->fd < 0)
		return -EINVAL;
	if (is_lost(of))
		return -EBADF;
	result = datasync ? fdatasync(of->fd) : fsync(of->fd);
	return result != 0 ? -errno : 0;
}

ssize_t kernel_write(struct file *file, const void *buf, size_t count, loff_t *pos)
{
	struct opened *of = opened(file);
	char value[ATTRIBUTE_MAX];
	ssize_t written;
	int error;

	if (!(file->f_mode & FMODE_WRITE) || is_lost(of))
		return -EBADF;
	if (of->fd >= 0) {
		written = pos ? pwrite(of->fd, buf, count, *pos) : write(of->fd, buf, count);
		if (written >= 0 && pos)
			*pos += written;
		return written < 0 ? -errno : written;
	}
	if (count >= sizeof(value))
		return -EINVAL;
	memcpy(value, buf, count);
	value[count] = '\0';
	error = uw_sysfs_set(of->path, value);
	if (error)
		return error;
	if (pos)
		*pos += (loff_t)count;
	return (ssize_t)count;
}

ssize_t kernel_read(struct file *file, void *buf, size_t count, loff_t *pos)
{
	struct opened *of = opened(file);
	char value[ATTRIBUTE_MAX];
	size_t begin = pos ? (size_t)*pos : 0;
	ssize_t got;
	int length;

	if (!(file->f_mode & FMODE_READ) || is_lost(of))
		return -EBADF;
	if (of->fd >= 0) {
		got = pos ? pread(of->fd, buf, count, *pos) : read(of->fd, buf, count);
		if (got >= 0 && pos)
			*pos += got;
		return got < 0 ? -errno : got;
	}
	length = uw_sysfs_get(of->path, value, sizeof(value) - 1);
	if (length < 0)
		return length;
	length = length < (int)sizeof(value) - 2 ? length : (int)sizeof(value) - 2;
	/* The kernel ends the value with a newline. */
	value[length++] = '\n';
	if (begin >= (size_t)length)
		return 0;
	got = (ssize_t)((size_t)length - begin < count ? (size_t)length - begin : count);
	memcpy(buf, value + begin, (size_t)got);
	if (pos)
		*pos += got;
	return got;
}
