/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Assertions and warnings. */
#ifndef UWORK_KERNEL_LINUX_BUG_H
#define UWORK_KERNEL_LINUX_BUG_H

#include <linux/printk.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif
void uw_kernel_bug(const char *what, const char *file, int line) __attribute__((noreturn));
bool uw_kernel_warn(const char *file, int line, const char *fmt, ...) UW_KERNEL_FORMAT(3, 4);
#ifdef __cplusplus
}
#endif

#define BUG() uw_kernel_bug("BUG", __FILE__, __LINE__)
#define BUG_ON(condition) \
	do { \
		if (unlikely(condition)) \
			uw_kernel_bug(#condition, __FILE__, __LINE__); \
	} while (0)
#define WARN(condition, ...) \
	(unlikely(condition) ? uw_kernel_warn(__FILE__, __LINE__, __VA_ARGS__) : false)
#define WARN_ON(condition) (unlikely(condition) ? uw_kernel_warn(__FILE__, __LINE__, "%s", #condition) : false)
#define UW_WARN_ONCE(condition, ...) \
	__extension__({ \
		static uint32_t uw_once; \
		bool uw_is = !!(condition); \
		if (unlikely(uw_is) && uw_kernel_once(&uw_once)) \
			uw_kernel_warn(__FILE__, __LINE__, __VA_ARGS__); \
		uw_is; \
	})
#define WARN_ON_ONCE(condition) UW_WARN_ONCE(condition, "%s", #condition)
#define WARN_ONCE(condition, ...) UW_WARN_ONCE(condition, __VA_ARGS__)
#ifndef BUILD_BUG_ON
#define BUILD_BUG_ON(condition) ((void)sizeof(char[1 - 2 * !!(condition)]))
#define BUILD_BUG_ON_MSG(condition, msg) BUILD_BUG_ON(condition)
#define BUILD_BUG_ON_ZERO(e) ((int)(sizeof(char[1 - 2 * !!(e)]) - 1))
#endif

#define BUILD_BUG_ON_NOT_POWER_OF_2(n) BUILD_BUG_ON((n) == 0 || ((n) & ((n) - 1)) != 0)
#define BUILD_BUG_ON_INVALID(e) ((void)sizeof((long)(e)))
#define BUILD_BUG() BUILD_BUG_ON_MSG(1, "BUILD_BUG")
#define compiletime_assert(condition, msg) BUILD_BUG_ON_MSG(!(condition), msg)
#define VM_BUG_ON(condition) BUG_ON(condition)
#define VM_WARN_ON(condition) WARN_ON(condition)
#define VM_WARN_ON_ONCE(condition) WARN_ON_ONCE(condition)
#define WARN_TAINT_ONCE(condition, taint, ...) WARN_ONCE(condition, __VA_ARGS__)
#define WARN_TAINT(condition, taint, ...) WARN(condition, __VA_ARGS__)

#endif
