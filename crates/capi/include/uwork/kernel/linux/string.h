/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Texts and memory, beside what the system has under this name. */
#ifndef UWORK_KERNEL_LINUX_STRING_H
#define UWORK_KERNEL_LINUX_STRING_H

/* #include_next is no ISO C, which the compiler would say. */
#pragma GCC system_header
#include_next <linux/string.h>

#include <string.h>

#include <linux/compiler.h>
#include <linux/errno.h>
#include "../uw_kernel_slab.h"
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif
char *uw_kernel_strdup(const char *text, size_t most);
char *uw_kernel_asprintf(const char *fmt, ...);
char *uw_kernel_strim(char *text);
ssize_t uw_kernel_strscpy(char *to, const char *from, size_t size);
int uw_kernel_match_string(const char *const *texts, size_t count, const char *text);
#ifdef __cplusplus
}
#endif

#define strscpy_3(to, from, size) uw_kernel_strscpy((to), (from), (size))
#define strscpy_2(to, from) uw_kernel_strscpy((to), (from), sizeof(to))
#define UW_STRSCPY(_1, _2, _3, name, ...) name
#define strscpy(...) UW_STRSCPY(__VA_ARGS__, strscpy_3, strscpy_2, unused)(__VA_ARGS__)
#define strscpy_pad(...) strscpy(__VA_ARGS__)
#define strlcpy(to, from, size) ((void)uw_kernel_strscpy((to), (from), (size)), strlen(from))
#define kstrdup(text, gfp) uw_kernel_strdup((text), SIZE_MAX)
#define kstrndup(text, max, gfp) uw_kernel_strdup((text), (max))
#define kstrdup_const(text, gfp) kstrdup(text, gfp)
#define kfree_const(ptr) kfree((void *)(uintptr_t)(ptr))
#define kasprintf(gfp, ...) uw_kernel_asprintf(__VA_ARGS__)
#define strim(text) uw_kernel_strim(text)
#define strstrip(text) uw_kernel_strim(text)
#define match_string(texts, n, text) uw_kernel_match_string((texts), (n), (text))

static inline void *kmemdup(const void *from, size_t size, gfp_t gfp)
{
	void *to = kmalloc(size, gfp);

	if (to)
		memcpy(to, from, size);
	return to;
}

/* Equal, but for a newline at the end of one of them. */
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

#endif
