/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Strings and memory. Includes the system's header of the same name. */
#ifndef UWORK_KERNEL_LINUX_STRING_H
#define UWORK_KERNEL_LINUX_STRING_H

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <linux/string.h>

#include <stdarg.h>
#include <string.h>

#include <linux/compiler.h>
#include <linux/errno.h>
#include "../uw_kernel_slab.h"
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif
char *uw_kernel_strdup(const char *text, size_t most);
char *uw_kernel_vasprintf(const char *fmt, va_list args) UW_KERNEL_FORMAT(1, 0);
char *uw_kernel_asprintf(const char *fmt, ...) UW_KERNEL_FORMAT(1, 2);
char *strim(char *text) UW_KERNEL_NAME(strim);
ssize_t uw_kernel_strscpy(char *to, const char *from, size_t size);
int uw_kernel_match_string(const char *const *texts, size_t count, const char *text);
#ifdef __cplusplus
}
#endif

#define UW_STRSCPY_3(to, from, size) uw_kernel_strscpy((to), (from), (size))
#define UW_STRSCPY_2(to, from) uw_kernel_strscpy((to), (from), sizeof(to))
#define UW_STRSCPY(_1, _2, _3, name, ...) name
#define strscpy(...) UW_STRSCPY(__VA_ARGS__, UW_STRSCPY_3, UW_STRSCPY_2, unused)(__VA_ARGS__)
#define strscpy_pad(...) strscpy(__VA_ARGS__)
#define strlcpy(to, from, size) ((void)uw_kernel_strscpy((to), (from), (size)), strlen(from))
#define kasprintf(gfp, ...) uw_kernel_asprintf(__VA_ARGS__)
#define kvasprintf(gfp, fmt, args) uw_kernel_vasprintf((fmt), (args))

static inline int match_string(const char *const *texts, size_t count, const char *text)
{
	return uw_kernel_match_string(texts, count, text);
}


static inline char *kstrdup(const char *text, gfp_t gfp)
{
	(void)gfp;
	return uw_kernel_strdup(text, SIZE_MAX);
}

static inline char *kstrndup(const char *text, size_t most, gfp_t gfp)
{
	(void)gfp;
	return uw_kernel_strdup(text, most);
}

static inline const char *kstrdup_const(const char *text, gfp_t gfp)
{
	return kstrdup(text, gfp);
}

static inline void kfree_const(const void *ptr)
{
	kfree(ptr);
}

static inline char *strstrip(char *text)
{
	return strim(text);
}

static inline void *kmemdup(const void *from, size_t size, gfp_t gfp)
{
	void *to = kmalloc(size, gfp);

	if (to)
		memcpy(to, from, size);
	return to;
}

/* Equality, except for a trailing newline of one of them. */
static inline bool sysfs_streq(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b || (!*a && *b == '\n' && !b[1]) || (*a == '\n' && !a[1] && !*b);
}

static inline void memzero_explicit(void *to, size_t size)
{
	memset(to, 0, size);
	barrier();
}

static inline const char *str_yes_no(bool value)
{
	return value ? "yes" : "no";
}

static inline const char *str_on_off(bool value)
{
	return value ? "on" : "off";
}

static inline const char *str_true_false(bool value)
{
	return value ? "true" : "false";
}

static inline const char *str_enabled_disabled(bool value)
{
	return value ? "enabled" : "disabled";
}

static inline const char *str_enable_disable(bool value)
{
	return value ? "enable" : "disable";
}

static inline const char *str_up_down(bool value)
{
	return value ? "up" : "down";
}

static inline const char *str_plural(size_t count)
{
	return count == 1 ? "" : "s";
}

static inline bool strstarts(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The prefix's length; 0 if the text does not begin with it. */
static inline size_t str_has_prefix(const char *text, const char *prefix)
{
	return strstarts(text, prefix) ? strlen(prefix) : 0;
}

static inline char *skip_spaces(const char *text)
{
	return (char *)(uintptr_t)text + strspn(text, " \t\n\v\f\r");
}

/* Returns the text itself. */
static inline char *strreplace(char *text, char old, char with)
{
	char *at;

	for (at = text; *at; at++) {
		if (*at == old)
			*at = with;
	}
	return text;
}

/* The first byte that differs from `value`; NULL if there is none. */
static inline void *memchr_inv(const void *from, int value, size_t size)
{
	const unsigned char *at = (const unsigned char *)from;

	for (; size > 0; size--, at++) {
		if (*at != (unsigned char)value)
			return (void *)(uintptr_t)at;
	}
	return NULL;
}

static inline void *memset32(u32 *to, u32 value, size_t count)
{
	size_t index;

	for (index = 0; index < count; index++)
		to[index] = value;
	return to;
}

static inline void *memset64(u64 *to, u64 value, size_t count)
{
	size_t index;

	for (index = 0; index < count; index++)
		to[index] = value;
	return to;
}

static inline char *kmemdup_nul(const char *from, size_t length, gfp_t gfp)
{
	char *to = (char *)kmalloc(length + 1, gfp);

	if (to) {
		memcpy(to, from, length);
		to[length] = '\0';
	}
	return to;
}

static inline void *kmemdup_array(const void *from, size_t count, size_t size, gfp_t gfp)
{
	size_t bytes;

	return check_mul_overflow(count, size, &bytes) ? NULL : kmemdup(from, bytes, gfp);
}

#define sysfs_match_string(texts, text) uw_kernel_match_sysfs((texts), sizeof(texts) / sizeof((texts)[0]), (text))

static inline int uw_kernel_match_sysfs(const char *const *texts, size_t count, const char *text)
{
	size_t index;

	for (index = 0; index < count && texts[index]; index++) {
		if (sysfs_streq(texts[index], text))
			return (int)index;
	}
	return -EINVAL;
}

#endif
