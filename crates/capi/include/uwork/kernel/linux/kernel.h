/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What everybody includes. Beside what the system has under this name. */
#ifndef UWORK_KERNEL_LINUX_KERNEL_H
#define UWORK_KERNEL_LINUX_KERNEL_H

/* Before what follows: in a system header, its formats would not be checked. */
#include <linux/printk.h>

/* #include_next is no ISO C, which the compiler would say. */
#pragma GCC system_header
#include_next <linux/kernel.h>

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../uw_kernel.h"
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

#ifndef ALIGN
#define ALIGN(x, a) (((x) + ((__typeof__(x))(a) - 1)) & ~((__typeof__(x))(a) - 1))
#define ALIGN_DOWN(x, a) ((x) & ~((__typeof__(x))(a) - 1))
#define IS_ALIGNED(x, a) (((x) & ((__typeof__(x))(a) - 1)) == 0)
#define PTR_ALIGN(p, a) ((__typeof__(p))ALIGN((unsigned long)(p), (a)))
#endif

#ifndef __cplusplus
#define abs(x) __extension__({ __typeof__(x) uw_abs = (x); uw_abs < 0 ? -uw_abs : uw_abs; })
#endif

#define U8_MAX ((u8)~0U)
#define U16_MAX ((u16)~0U)
#define U32_MAX ((u32)~0U)
#define U64_MAX ((u64)~0ULL)
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
/* As snprintf(), but the number of bytes that were written; and with the kernel's formats. */
int scnprintf(char *buf, size_t size, const char *fmt, ...) UW_KERNEL_NAME(scnprintf) UW_KERNEL_FORMAT(3, 4);
int uw_kernel_snprintf(char *buf, size_t size, const char *fmt, ...) UW_KERNEL_FORMAT(3, 4);
int uw_kernel_sprintf(char *buf, const char *fmt, ...) UW_KERNEL_FORMAT(2, 3);
int uw_kernel_vsnprintf(char *buf, size_t size, const char *fmt, va_list args) UW_KERNEL_FORMAT(3, 0);
int uw_kernel_vscnprintf(char *buf, size_t size, const char *fmt, va_list args) UW_KERNEL_FORMAT(3, 0);
#define vscnprintf(buf, size, fmt, args) uw_kernel_vscnprintf((buf), (size), (fmt), (args))
/* A whole number, with a newline or without; 0, -EINVAL or -ERANGE. */
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
 * With the kernel's formats, as printk(). stdio.h was included above, so that its declarations are what they are.
 * Not in C++, where they are names of a namespace too.
 */
#if !defined(__cplusplus) && !defined(UW_KERNEL_LIBRARY)
#undef snprintf
#undef sprintf
#undef vsnprintf
#define snprintf(...) uw_kernel_snprintf(__VA_ARGS__)
#define sprintf(...) uw_kernel_sprintf(__VA_ARGS__)
#define vsnprintf(...) uw_kernel_vsnprintf(__VA_ARGS__)
#endif

#endif
