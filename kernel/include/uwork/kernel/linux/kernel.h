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

#include "../uw_kernel.h"
#include "../uw_kernel_string.h"
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

#ifdef __cplusplus
extern "C" {
#endif
void panic(const char *fmt, ...) UW_KERNEL_NAME(panic) UW_KERNEL_FORMAT(1, 2) __attribute__((noreturn));
/* The C library's, whose header declares names that modules use. */
int uw_kernel_sscanf(const char *text, const char *fmt, ...) __asm__("sscanf") __attribute__((__format__(__scanf__, 2, 3)));
unsigned long long uw_kernel_strtoull(const char *text, char **end, int base) __asm__("strtoull");
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
 * sprintf() and its relatives use the kernel's formats, like printk(). See ../stdio.h. Not in C++,
 * where these names are also members of a namespace.
 */
#if !defined(__cplusplus) && !defined(UW_KERNEL_LIBRARY)
#undef snprintf
#undef sprintf
#undef vsnprintf
#undef sscanf
#define snprintf(...) uw_kernel_snprintf(__VA_ARGS__)
#define sprintf(...) uw_kernel_sprintf(__VA_ARGS__)
#define vsnprintf(...) uw_kernel_vsnprintf(__VA_ARGS__)
#define sscanf(...) uw_kernel_sscanf(__VA_ARGS__)
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

/* The same of a text in user memory, which is not terminated. */
#define UW_KSTRTO_FROM_USER(name, type) \
	static inline int name##_from_user(const char __user *from, size_t count, unsigned int base, type *value) \
	{ \
		char text[70]; \
		count = count < sizeof(text) ? count : sizeof(text) - 1; \
		memcpy(text, from, count); \
		text[count] = '\0'; \
		return name(text, base, value); \
	}
UW_KSTRTO_FROM_USER(kstrtoul, unsigned long)
UW_KSTRTO_FROM_USER(kstrtol, long)
UW_KSTRTO_FROM_USER(kstrtoull, unsigned long long)
UW_KSTRTO_FROM_USER(kstrtoll, long long)
UW_KSTRTO_FROM_USER(kstrtouint, unsigned int)
UW_KSTRTO_FROM_USER(kstrtoint, int)
UW_KSTRTO_FROM_USER(kstrtou16, u16)
UW_KSTRTO_FROM_USER(kstrtos16, s16)
UW_KSTRTO_FROM_USER(kstrtou8, u8)
UW_KSTRTO_FROM_USER(kstrtos8, s8)

static inline int kstrtobool_from_user(const char __user *from, size_t count, bool *value)
{
	char text[4] = "";

	memcpy(text, from, count < sizeof(text) ? count : sizeof(text) - 1);
	return kstrtobool(text, value);
}

/* Parses the number at the beginning of a text. Returns 0 and the text itself if there is none. */
static inline unsigned long long simple_strtoull(const char *text, char **end, unsigned int base)
{
	bool is_number = (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');

	if (!is_number) {
		if (end)
			*end = (char *)(uintptr_t)text;
		return 0;
	}
	return uw_kernel_strtoull(text, end, (int)base);
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
	digit = (unsigned char)(digit | 0x20);
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static inline int uw_kernel_hex_digit(unsigned int value)
{
	return "0123456789abcdef"[value & 15];
}

#define hex_asc_lo(x) uw_kernel_hex_digit(x)
#define hex_asc_hi(x) uw_kernel_hex_digit((unsigned int)(x) >> 4)

static inline char *hex_byte_pack(char *to, u8 byte)
{
	*to++ = (char)hex_asc_hi(byte);
	*to++ = (char)hex_asc_lo(byte);
	return to;
}

/* -EINVAL if a character is no hexadecimal digit. `text` has 2 * count of them. */
static inline int hex2bin(u8 *to, const char *text, size_t count)
{
	for (; count > 0; count--, text += 2) {
		int high = hex_to_bin((unsigned char)text[0]);
		int low = high < 0 ? high : hex_to_bin((unsigned char)text[1]);

		if (low < 0)
			return -EINVAL;
		*to++ = (u8)(high << 4 | low);
	}
	return 0;
}

/* Returns the end of the text, which is not terminated. */
static inline char *bin2hex(char *to, const void *from, size_t count)
{
	const u8 *byte = (const u8 *)from;

	while (count-- > 0)
		to = hex_byte_pack(to, *byte++);
	return to;
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
