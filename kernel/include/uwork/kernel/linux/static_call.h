/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls through a pointer that rarely changes. Here it is loaded at each call: code is not patched. */
#ifndef UWORK_KERNEL_LINUX_STATIC_CALL_H
#define UWORK_KERNEL_LINUX_STATIC_CALL_H

#include <linux/compiler.h>

#define UW_STATIC_CALL(name) UW_PASTE(uw_static_call_, name)
#define DECLARE_STATIC_CALL(name, function) extern __typeof__(function) *UW_STATIC_CALL(name)
#define DEFINE_STATIC_CALL(name, function) __typeof__(function) *UW_STATIC_CALL(name) = (function)
#define DEFINE_STATIC_CALL_NULL(name, function) __typeof__(function) *UW_STATIC_CALL(name) = NULL
#define static_call(name) (__atomic_load_n(&UW_STATIC_CALL(name), __ATOMIC_ACQUIRE))
#define static_call_query(name) static_call(name)
#define static_call_update(name, function) __atomic_store_n(&UW_STATIC_CALL(name), (function), __ATOMIC_RELEASE)
#define static_call_mod(name) static_call(name)
#define EXPORT_STATIC_CALL(name) extern int uw_unused_declaration
#define EXPORT_STATIC_CALL_GPL(name) extern int uw_unused_declaration
#define EXPORT_STATIC_CALL_TRAMP(name) extern int uw_unused_declaration
#define EXPORT_STATIC_CALL_TRAMP_GPL(name) extern int uw_unused_declaration

static inline void uw_static_call_nothing(void)
{
}

/*
 * Does nothing while the pointer is NULL, for functions without a result. The pointer is loaded once,
 * because another thread may set it to NULL.
 */
#define static_call_cond(name) \
	(__extension__({ \
		__typeof__(UW_STATIC_CALL(name)) uw_call = static_call(name); \
		uw_call ? uw_call : (__typeof__(uw_call))uw_static_call_nothing; \
	}))

#endif
