/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* User memory is the program's own memory: an access to an unmapped address ends the program. */
#ifndef UWORK_KERNEL_LINUX_UACCESS_H
#define UWORK_KERNEL_LINUX_UACCESS_H

#include "../uw_kernel_string.h"
#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/types.h>

#define access_ok(addr, size) ((void)(addr), (void)(size), true)

/* Returns how many bytes were not copied: always 0. */
static inline unsigned long copy_from_user(void *to, const void __user *from, unsigned long size)
{
	memcpy(to, from, size);
	return 0;
}

static inline unsigned long copy_to_user(void __user *to, const void *from, unsigned long size)
{
	memcpy(to, from, size);
	return 0;
}

static inline unsigned long clear_user(void __user *to, unsigned long size)
{
	memset(to, 0, size);
	return 0;
}

/* Returns the length without the terminator; `count` if there was no room for it. */
static inline long strncpy_from_user(char *to, const char __user *from, long count)
{
	const char *end = (const char *)memchr(from, '\0', (size_t)count);
	size_t length = end ? (size_t)(end - from) : (size_t)count;

	memcpy(to, from, end ? length + 1 : length);
	return (long)length;
}

static inline long strnlen_user(const char __user *from, long most)
{
	/* The limit may be beyond the text, of which the compiler would warn. */
	OPTIMIZER_HIDE_VAR(most);
	return (long)strnlen(from, (size_t)most) + 1;
}

#define copy_from_user_nofault(to, from, size) ((int)copy_from_user((to), (from), (size)))
#define copy_to_user_nofault(to, from, size) ((int)copy_to_user((to), (from), (size)))

/*
 * A structure of user memory that may be older, so that the rest of `to` is cleared, or newer: then
 * -E2BIG unless the rest of it is zero.
 */
static inline int copy_struct_from_user(void *to, size_t size, const void __user *from, size_t from_size)
{
	const char *rest = (const char *)from + size;
	size_t copied = size < from_size ? size : from_size;

	for (; from_size > size && rest < (const char *)from + from_size; rest++) {
		if (*rest)
			return -E2BIG;
	}
	memcpy(to, from, copied);
	memset((char *)to + copied, 0, size - copied);
	return 0;
}

#define get_user(x, ptr) ((x) = *(ptr), 0)
#define put_user(x, ptr) (*(ptr) = (x), 0)

#endif
