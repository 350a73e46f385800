/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The general definitions that most sources include. Includes the system's header of the same name.
 */
#ifndef UWORK_KERNEL_LINUX_KERNEL_H
#define UWORK_KERNEL_LINUX_KERNEL_H

/* Included before the pragma below: the compiler does not check formats in a system header. */
#include <linux/printk.h>

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <linux/kernel.h>

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../uw_kernel.h"
#include <linux/align.h>
#include <linux/array_size.h>
#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/compiler.h>
#include <linux/container_of.h>
#include <linux/err.h>
#include <linux/log2.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/stddef.h>
#include <linux/types.h>

#ifndef __cplusplus
#define abs(x) __extension__({ __typeof__(x) uw_abs = (x); uw_abs < 0 ? -uw_abs : uw_abs; })
#endif

#define U8_MAX ((u8)~0U)
#define U16_MAX ((u16)~0U)
#define U32_MAX ((u32)~0U)
#define U64_MAX ((u64)~0ULL)
#define S8_MAX ((s8)(U8_MAX >> 1))
#define S8_MIN ((s8)(-S8_MAX - 1))
#define S16_MAX ((s16)(U16_MAX >> 1))
#define S16_MIN ((s16)(-S16_MAX - 1))
#define S32_MIN ((s32)(-S32_MAX - 1))
#define S64_MIN ((s64)(-S64_MAX - 1))
#define upper_16_bits(n) ((u16)((n) >> 16))
#define lower_16_bits(n) ((u16)((n) & 0xffff))
#define PTR_IF(condition, ptr) ((condition) ? (ptr) : NULL)
#define might_sleep_if(condition) ((void)(condition))
#define cant_sleep() ((void)0)
#define u64_to_user_ptr(x) ((void __user *)(uintptr_t)(x))
#define ptr_to_u64(x) ((u64)(uintptr_t)(x))
#define S32_MAX ((s32)(U32_MAX >> 1))
#define S64_MAX ((s64)(U64_MAX >> 1))

#define upper_32_bits(n) ((u32)((n) >> 16 >> 16))
#define lower_32_bits(n) ((u32)((n) & 0xffffffff))
#define might_sleep() ((void)0)
#define might_fault() ((void)0)
#define panic(...) (printk(KERN_EMERG __VA_ARGS__), uw_kernel_bug("panic", __FILE__, __LINE__))

#ifdef __cplusplus
extern "C" {
#endif
/* Like snprintf() with the kernel's formats, but returns the number of bytes written. */
int scnprintf(char *buf, size_t size, const char *fmt, ...) UW_KERNEL_NAME(scnprintf) UW_KERNEL_FORMAT(3, 4);
int uw_kernel_snprintf(char *buf, size_t size, const char *fmt, ...) UW_KERNEL_FORMAT(3, 4);
int uw_kernel_sprintf(char *buf, const char *fmt, ...) UW_KERNEL_FORMAT(2, 3);
int uw_kernel_vsnprintf(char *buf, size_t size, const char *fmt, va_list args) UW_KERNEL_FORMAT(3, 0);
int uw_kernel_vscnprintf(char *buf, size_t size, const char *fmt, va_list args) UW_KERNEL_FORMAT(3, 0);
#define vscnprintf(buf, size, fmt, args) uw_kernel_vscnprintf((buf), (size), (fmt), (args))
/* Parses an integer, with or without a trailing newline. Returns 0, -EINVAL or -ERANGE. */
int kstrtoll(const char *text, unsigned int base, long long *value) UW_KERNEL_NAME(kstrtoll);
int kstrtoull(const char *text, unsigned int base, unsigned long long *value) UW_KERNEL_NAME(kstrtoull);
int kstrtol(const char *text, unsigned int base, long *value) UW_KERNEL_NAME(kstrtol);
int kstrtoul(const char *text, unsigned int base, unsigned long *value) UW_KERNEL_NAME(kstrtoul);
int kstrtoint(const char *text, unsigned int base, int *value) UW_KERNEL_NAME(kstrtoint);
int kstrtouint(const char *text, unsigned int base, unsigned int *value) UW_KERNEL_NAME(kstrtouint);
int kstrtobool(const char *text, bool *value) UW_KERNEL_NAME(kstrtobool);
#ifdef __cplusplus
}
#endif

/*
 * sprintf() and its relatives use the kernel's formats, like printk(). stdio.h was included above,
 * so that the macros do not change its declarations. Not in C++, where these names are also members
 * of a namespace.
 */
#if !defined(__cplusplus) && !defined(UW_KERNEL_LIBRARY)
#undef snprintf
#undef sprintf
#undef vsnprintf
#define snprintf(...) uw_kernel_snprintf(__VA_ARGS__)
#define sprintf(...) uw_kernel_sprintf(__VA_ARGS__)
#define vsnprintf(...) uw_kernel_vsnprintf(__VA_ARGS__)
#endif

/* Integers of a given width. Return 0, -EINVAL or -ERANGE. */
#define UW_KSTRTOU(bits) \
	static inline int kstrtou##bits(const char *text, unsigned int base, u##bits *value) \
	{ \
		unsigned long long number; \
		int error = kstrtoull(text, base, &number); \
		if (error) \
			return error; \
		if ((u##bits)number != number) \
			return -ERANGE; \
		*value = (u##bits)number; \
		return 0; \
	}
#define UW_KSTRTOS(bits) \
	static inline int kstrtos##bits(const char *text, unsigned int base, s##bits *value) \
	{ \
		long long number; \
		int error = kstrtoll(text, base, &number); \
		if (error) \
			return error; \
		if ((s##bits)number != number) \
			return -ERANGE; \
		*value = (s##bits)number; \
		return 0; \
	}
UW_KSTRTOU(8)
UW_KSTRTOU(16)
UW_KSTRTOU(32)
UW_KSTRTOU(64)
UW_KSTRTOS(8)
UW_KSTRTOS(16)
UW_KSTRTOS(32)
UW_KSTRTOS(64)

/* Parses the number at the beginning of a text. Returns 0 and the text itself if there is none. */
static inline unsigned long long simple_strtoull(const char *text, char **end, unsigned int base)
{
	bool is_number = (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');

	if (!is_number) {
		if (end)
			*end = (char *)(uintptr_t)text;
		return 0;
	}
	return strtoull(text, end, (int)base);
}

static inline unsigned long simple_strtoul(const char *text, char **end, unsigned int base)
{
	return (unsigned long)simple_strtoull(text, end, base);
}

static inline long long simple_strtoll(const char *text, char **end, unsigned int base)
{
	if (*text == '-')
		return (long long)(0 - simple_strtoull(text + 1, end, base));
	return (long long)simple_strtoull(text, end, base);
}

static inline long simple_strtol(const char *text, char **end, unsigned int base)
{
	return (long)simple_strtoll(text, end, base);
}

/* The value of a hexadecimal digit; -1 for any other character. */
static inline int hex_to_bin(unsigned char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	digit |= 0x20;
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Parses a number with an optional suffix K, M, G, T, P or E. */
static inline unsigned long long memparse(const char *text, char **end)
{
	static const char units[] = "KMGTPE";
	char *after;
	unsigned long long value = simple_strtoull(text, &after, 0);
	const char *unit = *after ? strchr(units, *after & ~0x20) : NULL;

	if (unit) {
		value <<= 10 * (unit - units + 1);
		after++;
	}
	if (end)
		*end = after;
	return value;
}

#endif
