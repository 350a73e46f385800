/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Cleanup at the end of a scope. */
#ifndef UWORK_KERNEL_LINUX_CLEANUP_H
#define UWORK_KERNEL_LINUX_CLEANUP_H

#include <linux/compiler.h>
#include <linux/err.h>

#ifndef __cplusplus
#ifndef __cleanup
#define __cleanup(function) __attribute__((__cleanup__(function)))
#endif
#define DEFINE_FREE(name, type, free_it) \
	static inline void __free_##name(void *p) \
	{ \
		type _T = *(type *)p; \
		free_it; \
	}
#define __free(name) __cleanup(__free_##name)
#define no_free_ptr(p) __extension__({ __typeof__(p) uw_kept = (p); (p) = NULL; uw_kept; })
#define return_ptr(p) return no_free_ptr(p)

#define DEFINE_GUARD(name, type, lock, unlock) \
	static inline type uw_guard_##name(type _T) \
	{ \
		lock; \
		return _T; \
	} \
	static inline void uw_unguard_##name(type *p) \
	{ \
		type _T = *p; \
		unlock; \
	} \
	typedef type uw_guard_type_##name

/* guard(mutex)(&lock); */
#define guard(name) \
	__cleanup(uw_unguard_##name) __attribute__((unused)) uw_guard_type_##name __UNIQUE_ID(guard) = uw_guard_##name
#define scoped_guard(name, ...) \
	for (uw_guard_type_##name uw_scope __cleanup(uw_unguard_##name) = uw_guard_##name(__VA_ARGS__), \
				  *uw_once = &uw_scope; \
	     uw_once; uw_once = NULL)
#endif

#endif
