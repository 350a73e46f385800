/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What everybody includes. Beside what the system has under this name. */
#ifndef UWORK_KERNEL_LINUX_KERNEL_H
#define UWORK_KERNEL_LINUX_KERNEL_H

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
#include <linux/printk.h>
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
int scnprintf(char *buf, size_t size, const char *fmt, ...) UW_KERNEL_NAME(scnprintf);
int uw_kernel_vsnprintf(char *buf, size_t size, const char *fmt, va_list args);
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

#endif
