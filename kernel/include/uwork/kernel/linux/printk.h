/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Messages: errors and warnings go to standard error, all others to standard output. */
#ifndef UWORK_KERNEL_LINUX_PRINTK_H
#define UWORK_KERNEL_LINUX_PRINTK_H

#include <stdarg.h>

#include "../uw_kernel.h"
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KERN_SOH "\001"
#define KERN_EMERG KERN_SOH "0"
#define KERN_ALERT KERN_SOH "1"
#define KERN_CRIT KERN_SOH "2"
#define KERN_ERR KERN_SOH "3"
#define KERN_WARNING KERN_SOH "4"
#define KERN_NOTICE KERN_SOH "5"
#define KERN_INFO KERN_SOH "6"
#define KERN_DEBUG KERN_SOH "7"
#define KERN_DEFAULT ""
#define KERN_CONT KERN_SOH "c"

/* For %pV: a format with its arguments. */
struct va_format {
	const char *fmt;
	va_list *va;
};

/*
 * Accepts the kernel's formats, for example %pe, %ps, %*pb[l] and %pV. Returns the number of bytes.
 */
int uw_kernel_printk(const char *fmt, ...) UW_KERNEL_FORMAT(1, 2);
/* The same. A leading "name.c:" in the format is a module's name, and is printed without ".c". */
int uw_kernel_printk_of_file(const char *fmt, ...) UW_KERNEL_FORMAT(1, 2);

void uw_kernel_dump_stack(void);

/* True for the first caller with this word. */
static inline bool uw_kernel_once(uint32_t *word)
{
	return __atomic_exchange_n(word, 1, __ATOMIC_RELAXED) == 0;
}

#ifdef __cplusplus
}
#endif

#ifndef pr_fmt
#define pr_fmt(fmt) fmt
#endif

/*
 * The kernel's makefiles define this. A preprocessor cannot remove ".c" from the file's name;
 * printk() does.
 */
#ifdef KBUILD_MODNAME
#define UW_PRINTK_FUNCTION uw_kernel_printk
#else
#ifdef __FILE_NAME__
#define KBUILD_MODNAME __FILE_NAME__
#else
#define KBUILD_MODNAME __FILE__
#endif
#define UW_PRINTK_FUNCTION uw_kernel_printk_of_file
#endif

#define printk(...) UW_PRINTK_FUNCTION(__VA_ARGS__)
#define _printk(...) UW_PRINTK_FUNCTION(__VA_ARGS__)
/*
 * pr_fmt() makes the prefix and the format one literal, so the format must be separated from the
 * arguments, of which there may be none. ISO C requires counting them.
 */
#define UW_PRINTK(level, ...) UW_PRINTK_COUNTED(__VA_ARGS__, UW_PRINTK_MANY_31, 0)(level, __VA_ARGS__)
#define UW_PRINTK_MANY_31 \
	UW_PRINTK_MANY_10, UW_PRINTK_MANY_10, UW_PRINTK_MANY_10, UW_PRINTK_ONE
#define UW_PRINTK_MANY_10 \
	UW_PRINTK_MANY, UW_PRINTK_MANY, UW_PRINTK_MANY, UW_PRINTK_MANY, UW_PRINTK_MANY, UW_PRINTK_MANY, UW_PRINTK_MANY, \
	UW_PRINTK_MANY, UW_PRINTK_MANY, UW_PRINTK_MANY
#define UW_PRINTK_COUNTED(...) UW_PRINTK_PICK(__VA_ARGS__)
#define UW_PRINTK_PICK(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18, _19, _20, \
		       _21, _22, _23, _24, _25, _26, _27, _28, _29, _30, _31, uw_form, ...) uw_form
#define UW_PRINTK_ONE(level, fmt) UW_PRINTK_FUNCTION(level pr_fmt(fmt))
#define UW_PRINTK_MANY(level, fmt, ...) UW_PRINTK_FUNCTION(level pr_fmt(fmt), __VA_ARGS__)
#define pr_emerg(...) UW_PRINTK(KERN_EMERG, __VA_ARGS__)
#define pr_alert(...) UW_PRINTK(KERN_ALERT, __VA_ARGS__)
#define pr_crit(...) UW_PRINTK(KERN_CRIT, __VA_ARGS__)
#define pr_err(...) UW_PRINTK(KERN_ERR, __VA_ARGS__)
#define pr_warn(...) UW_PRINTK(KERN_WARNING, __VA_ARGS__)
#define pr_warning(...) pr_warn(__VA_ARGS__)
#define pr_notice(...) UW_PRINTK(KERN_NOTICE, __VA_ARGS__)
#define pr_info(...) UW_PRINTK(KERN_INFO, __VA_ARGS__)
/* Continues a line, so pr_fmt() is not applied. */
#define pr_cont(...) printk(KERN_CONT __VA_ARGS__)
#ifdef DEBUG
#define pr_debug(...) UW_PRINTK(KERN_DEBUG, __VA_ARGS__)
#else
#define pr_debug(...) \
	do { \
		if (0) \
			UW_PRINTK(KERN_DEBUG, __VA_ARGS__); \
	} while (0)
#endif
#define pr_devel(...) pr_debug(__VA_ARGS__)
#define no_printk(...) \
	do { \
		if (0) \
			printk(__VA_ARGS__); \
	} while (0)

#define UW_ONCE(statement) \
	do { \
		static uint32_t uw_once; \
		if (uw_kernel_once(&uw_once)) \
			statement; \
	} while (0)
#define printk_once(...) UW_ONCE(printk(__VA_ARGS__))
#define pr_err_once(...) UW_ONCE(pr_err(__VA_ARGS__))
#define pr_warn_once(...) UW_ONCE(pr_warn(__VA_ARGS__))
#define pr_notice_once(...) UW_ONCE(pr_notice(__VA_ARGS__))
#define pr_info_once(...) UW_ONCE(pr_info(__VA_ARGS__))
#define pr_emerg_once(...) UW_ONCE(pr_emerg(__VA_ARGS__))
#define pr_alert_once(...) UW_ONCE(pr_alert(__VA_ARGS__))
#define pr_crit_once(...) UW_ONCE(pr_crit(__VA_ARGS__))
#define pr_debug_once(...) UW_ONCE(pr_debug(__VA_ARGS__))
#define pr_emerg_ratelimited(...) pr_emerg(__VA_ARGS__)
#define pr_alert_ratelimited(...) pr_alert(__VA_ARGS__)
#define pr_crit_ratelimited(...) pr_crit(__VA_ARGS__)
#define pr_err_ratelimited(...) pr_err(__VA_ARGS__)
#define pr_warn_ratelimited(...) pr_warn(__VA_ARGS__)
#define pr_info_ratelimited(...) pr_info(__VA_ARGS__)
#define printk_ratelimited(...) printk(__VA_ARGS__)
#define printk_deferred(...) printk(__VA_ARGS__)
/* Prints the calling thread and its call trace, as warnings. */
#define dump_stack() uw_kernel_dump_stack()
#define dump_stack_lvl(level) ((void)(level), uw_kernel_dump_stack())

enum {
	DUMP_PREFIX_NONE,
	DUMP_PREFIX_ADDRESS,
	DUMP_PREFIX_OFFSET
};

#ifdef __cplusplus
extern "C" {
#endif
/*
 * One line of 16 or 32 bytes, in groups of 1, 2, 4 or 8. Returns the length of the full line, also
 * if the buffer is too small.
 */
int hex_dump_to_buffer(const void *buf, size_t len, int rowsize, int groupsize, char *line, size_t size, bool ascii) UW_KERNEL_NAME(hex_dump_to_buffer);
void print_hex_dump(const char *level, const char *prefix, int prefix_type, int rowsize, int groupsize, const void *buf,
		    size_t len, bool ascii) UW_KERNEL_NAME(print_hex_dump);
#ifdef __cplusplus
}
#endif

#define print_hex_dump_bytes(prefix, prefix_type, buf, len) \
	print_hex_dump(KERN_DEBUG, (prefix), (prefix_type), 16, 1, (buf), (len), true)
#ifdef DEBUG
#define print_hex_dump_debug(...) print_hex_dump(KERN_DEBUG, __VA_ARGS__)
#else
#define print_hex_dump_debug(...) ((void)0)
#endif
#define pr_notice_ratelimited(...) pr_notice(__VA_ARGS__)
#define pr_debug_ratelimited(...) pr_debug(__VA_ARGS__)
#define trace_printk(...) printk(__VA_ARGS__)

#endif
