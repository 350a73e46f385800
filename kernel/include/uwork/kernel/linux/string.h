/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Strings and memory. The system's header of this name includes that of the C library, which is not
 * wanted here.
 */
#ifndef UWORK_KERNEL_LINUX_STRING_H
#define UWORK_KERNEL_LINUX_STRING_H

#include <stdarg.h>

#include <linux/compiler.h>
#include <linux/err.h>
#include <linux/errno.h>
#include "../uw_kernel_slab.h"
#include "../uw_kernel_string.h"
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
/* The rest of the destination is cleared. */
#define UW_STRSCPY_PAD_3(to, from, size) uw_kernel_strscpy_pad((to), (from), (size))
#define UW_STRSCPY_PAD_2(to, from) uw_kernel_strscpy_pad((to), (from), sizeof(to))
#define strscpy_pad(...) UW_STRSCPY(__VA_ARGS__, UW_STRSCPY_PAD_3, UW_STRSCPY_PAD_2, unused)(__VA_ARGS__)

/* C libraries have functions of these two names, some of them inline. */
#undef strlcpy
#undef strlcat
#define strlcpy uw_kernel_strlcpy
#define strlcat uw_kernel_strlcat

/* The length of the text; at least `size` if it was cut. */
static inline size_t uw_kernel_strlcpy(char *to, const char *from, size_t size)
{
	size_t length = strlen(from);

	(void)uw_kernel_strscpy(to, from, size);
	return length;
}

static inline char *kvasprintf(gfp_t gfp, const char *fmt, va_list args) UW_KERNEL_FORMAT(2, 0);
static inline char *kvasprintf(gfp_t gfp, const char *fmt, va_list args)
{
	(void)gfp;
	return uw_kernel_vasprintf(fmt, args);
}

static inline char *kasprintf(gfp_t gfp, const char *fmt, ...) UW_KERNEL_FORMAT(2, 3);
static inline char *kasprintf(gfp_t gfp, const char *fmt, ...)
{
	va_list args;
	char *text;

	va_start(args, fmt);
	text = kvasprintf(gfp, fmt, args);
	va_end(args);
	return text;
}

static inline ssize_t uw_kernel_strscpy_pad(char *to, const char *from, size_t size)
{
	ssize_t length = uw_kernel_strscpy(to, from, size);

	if (length >= 0)
		memset(to + length, 0, size - (size_t)length);
	return length;
}

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

#define UW_STR_CHOICE(name, if_true, if_false) \
	static inline const char *name(bool value) \
	{ \
		return value ? (if_true) : (if_false); \
	}
UW_STR_CHOICE(str_no_yes, "no", "yes")
UW_STR_CHOICE(str_off_on, "off", "on")
UW_STR_CHOICE(str_false_true, "false", "true")
UW_STR_CHOICE(str_disabled_enabled, "disabled", "enabled")
UW_STR_CHOICE(str_disable_enable, "disable", "enable")
UW_STR_CHOICE(str_down_up, "down", "up")
UW_STR_CHOICE(str_high_low, "high", "low")
UW_STR_CHOICE(str_low_high, "low", "high")
UW_STR_CHOICE(str_hi_lo, "hi", "lo")
UW_STR_CHOICE(str_lo_hi, "lo", "hi")
UW_STR_CHOICE(str_read_write, "read", "write")
UW_STR_CHOICE(str_write_read, "write", "read")
UW_STR_CHOICE(str_lock_unlock, "lock", "unlock")
UW_STR_CHOICE(str_assert_deassert, "assert", "deassert")
UW_STR_CHOICE(str_connected_disconnected, "connected", "disconnected")
UW_STR_CHOICE(str_input_output, "input", "output")

static inline const char *str_plural(size_t count)
{
	return count == 1 ? "" : "s";
}

static inline bool strstarts(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The first `wanted` within the first `count` characters; NULL, or the end, if there is none. */
static inline char *strnchr(const char *text, size_t count, int wanted)
{
	for (; count > 0; count--, text++) {
		if (*text == (char)wanted)
			return (char *)(uintptr_t)text;
		if (!*text)
			break;
	}
	return NULL;
}

static inline char *strnchrnul(const char *text, size_t count, int wanted)
{
	while (count-- > 0 && *text && *text != (char)wanted)
		text++;
	return (char *)(uintptr_t)text;
}

/* The first place of `wanted` that ends within the first `count` characters. */
static inline char *strnstr(const char *text, const char *wanted, size_t count)
{
	size_t length = strlen(wanted), end = strnlen(text, count), at;

	for (at = 0; at + length <= end; at++) {
		if (memcmp(text + at, wanted, length) == 0)
			return (char *)(uintptr_t)(text + at);
	}
	return NULL;
}

/* What follows the last slash. */
static inline const char *kbasename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static inline bool mem_is_zero(const void *from, size_t size)
{
	const unsigned char *at = (const unsigned char *)from;

	while (size > 0 && !*at) {
		at++;
		size--;
	}
	return size == 0;
}

/* Fills the rest of the destination with `pad`. */
static inline void memcpy_and_pad(void *to, size_t size, const void *from, size_t count, int pad)
{
	size_t copied = count < size ? count : size;

	memcpy(to, from, copied);
	memset((char *)to + copied, pad, size - copied);
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

/* The length that the text would have had; at least `size` if it was cut. */
static inline size_t uw_kernel_strlcat(char *to, const char *from, size_t size)
{
	size_t used = strnlen(to, size), added = strlen(from);

	if (used < size) {
		size_t copied = added < size - used ? added : size - used - 1;

		memcpy(to + used, from, copied);
		to[used + copied] = '\0';
	}
	return used + added;
}

/* The end if there is none. */
static inline void *memscan(void *from, int value, size_t size)
{
	void *found = memchr(from, value, size);

	return found ? found : (char *)from + size;
}

/* Texts in arrays that need not be terminated. */
#define UW_TEXT_IN(from, size) \
	strnlen((from), __builtin_object_size((from), 1) < (size) ? __builtin_object_size((from), 1) : (size))
#define strtomem(to, from) memcpy((to), (from), UW_TEXT_IN(from, sizeof(to)))
#define strtomem_pad(to, from, pad) memcpy_and_pad((to), sizeof(to), (from), UW_TEXT_IN(from, sizeof(to)), (pad))
#define memtostr(to, from) \
	do { \
		size_t uw_length = strnlen((from), sizeof(from) < sizeof(to) ? sizeof(from) : sizeof(to) - 1); \
		memcpy((to), (from), uw_length); \
		(to)[uw_length] = '\0'; \
	} while (0)

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

static inline void *memset16(u16 *to, u16 value, size_t count)
{
	size_t index;

	for (index = 0; index < count; index++)
		to[index] = value;
	return to;
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

static inline void *kvmemdup(const void *from, size_t size, gfp_t gfp)
{
	return kmemdup(from, size, gfp);
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

/* User memory is the program's own memory. An ERR_PTR() if there is no memory. */
static inline void *memdup_user(const void __user *from, size_t size)
{
	void *to = kmemdup(from, size, GFP_KERNEL);

	return to ? to : ERR_PTR(-ENOMEM);
}

static inline void *vmemdup_user(const void __user *from, size_t size)
{
	return memdup_user(from, size);
}

static inline void *memdup_array_user(const void __user *from, size_t count, size_t size)
{
	size_t bytes;

	return check_mul_overflow(count, size, &bytes) ? ERR_PTR(-EOVERFLOW) : memdup_user(from, bytes);
}

static inline void *memdup_user_nul(const void __user *from, size_t size)
{
	char *to = kmemdup_nul((const char *)from, size, GFP_KERNEL);

	return to ? to : ERR_PTR(-ENOMEM);
}

/* -EINVAL if the text with its terminator is longer than `size`. */
static inline char *strndup_user(const char __user *from, long size)
{
	size_t length = strnlen(from, (size_t)size);

	if (length >= (size_t)size)
		return (char *)ERR_PTR(-EINVAL);
	return (char *)memdup_user(from, length + 1);
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
