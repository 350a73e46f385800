/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Cleanup at the end of a scope. A class is a type with a constructor and a destructor; a guard is
 * a class that holds a lock. No macro needs a semicolon.
 */
#ifndef UWORK_KERNEL_LINUX_CLEANUP_H
#define UWORK_KERNEL_LINUX_CLEANUP_H

#include <linux/compiler.h>
#include <linux/err.h>

#ifndef __cplusplus
#ifndef __cleanup
#define __cleanup(function) __attribute__((__cleanup__(function)))
#endif

/* ------------------------------------------------------------------------------------- pointers */

#define DEFINE_FREE(name, type, free_it) \
	static inline void __free_##name(void *p) \
	{ \
		type _T = *(type *)p; \
		free_it; \
	}
#define __free(name) __cleanup(__free_##name)
#define no_free_ptr(p) __extension__({ __typeof__(p) uw_kept = (p); (p) = NULL; uw_kept; })
#define return_ptr(p) return no_free_ptr(p)
/* For a pointer that a function has taken over. */
#define retain_and_null_ptr(p) ((void)no_free_ptr(p))

/* -------------------------------------------------------------------------------------- classes */

#define DEFINE_CLASS(name, type, exit_it, init_it, ...) \
	typedef type class_##name##_t; \
	static __maybe_unused inline void class_##name##_destructor(type *p) \
	{ \
		type _T = *p; \
		exit_it; \
	} \
	static __maybe_unused inline type class_##name##_constructor(__VA_ARGS__) \
	{ \
		type t = init_it; \
		return t; \
	}
#define EXTEND_CLASS(name, ext, init_it, ...) \
	typedef class_##name##_t class_##name##ext##_t; \
	static __maybe_unused inline void class_##name##ext##_destructor(class_##name##_t *p) \
	{ \
		class_##name##_destructor(p); \
	} \
	static __maybe_unused inline class_##name##_t class_##name##ext##_constructor(__VA_ARGS__) \
	{ \
		class_##name##_t t = init_it; \
		return t; \
	}
#define CLASS(name, var) \
	class_##name##_t var __cleanup(class_##name##_destructor) = class_##name##_constructor

/* --------------------------------------------------------------------------------------- guards */

/* The address of the lock that the guard holds; NULL if a conditional guard did not get it. */
#define UW_GUARD_LOCK(name, value) \
	static __maybe_unused inline void *class_##name##_lock_ptr(class_##name##_t *_T) \
	{ \
		return (void *)(uintptr_t)(value); \
	}
#define UW_GUARD_IS(name, is) enum { uw_guard_##name##_is_conditional = (is) };

#define DEFINE_GUARD(name, type, lock_it, unlock_it) \
	DEFINE_CLASS(name, type, if (_T) { unlock_it; }, __extension__({ lock_it; _T; }), type _T) \
	UW_GUARD_LOCK(name, *_T) \
	UW_GUARD_IS(name, 0)
/* `condition` is true if the lock was taken; it may refer to _RET, its own value. */
#define UW_DEFINE_GUARD_COND_3(name, ext, condition) UW_DEFINE_GUARD_COND_4(name, ext, condition, _RET)
#define UW_DEFINE_GUARD_COND_4(name, ext, lock_it, condition) \
	EXTEND_CLASS(name, ext, __extension__({ int _RET = (int)(lock_it); (condition) ? _T : NULL; }), class_##name##_t _T) \
	UW_GUARD_LOCK(name##ext, *_T) \
	UW_GUARD_IS(name##ext, 1)
#define UW_PICK_4(_1, _2, _3, _4, uw_form, ...) uw_form
#define DEFINE_GUARD_COND(...) \
	UW_PICK_4(__VA_ARGS__, UW_DEFINE_GUARD_COND_4, UW_DEFINE_GUARD_COND_3, 0)(__VA_ARGS__)

/* Guards with members of their own, or without an argument. */
#define UW_LOCK_GUARD_CLASS(name, type, unlock_it, ...) \
	typedef struct { \
		type *lock; \
		__VA_ARGS__; \
	} class_##name##_t; \
	static __maybe_unused inline void class_##name##_destructor(class_##name##_t *_T) \
	{ \
		if (_T->lock) { \
			unlock_it; \
		} \
	} \
	UW_GUARD_LOCK(name, _T->lock) \
	UW_GUARD_IS(name, 0)
#define DEFINE_LOCK_GUARD_1(name, type, lock_it, unlock_it, ...) \
	UW_LOCK_GUARD_CLASS(name, type, unlock_it, __VA_ARGS__) \
	static __maybe_unused inline class_##name##_t class_##name##_constructor(type *l) \
	{ \
		class_##name##_t _t = { .lock = l }, *_T = &_t; \
		lock_it; \
		return _t; \
	}
#define DEFINE_LOCK_GUARD_0(name, lock_it, unlock_it, ...) \
	UW_LOCK_GUARD_CLASS(name, void, unlock_it, __VA_ARGS__) \
	static __maybe_unused inline class_##name##_t class_##name##_constructor(void) \
	{ \
		class_##name##_t _t = { .lock = (void *)1 }, *_T __maybe_unused = &_t; \
		lock_it; \
		return _t; \
	}
#define UW_DEFINE_LOCK_GUARD_1_COND_3(name, ext, lock_it) UW_DEFINE_LOCK_GUARD_1_COND_4(name, ext, lock_it, _RET)
#define UW_DEFINE_LOCK_GUARD_1_COND_4(name, ext, lock_it, condition) \
	EXTEND_CLASS(name, ext, __extension__({ class_##name##_t _t = { .lock = l }, *_T = &_t; \
				   int _RET = (int)(lock_it); \
				   if (!(condition)) \
					   _T->lock = NULL; \
				   _t; }), __typeof__(((class_##name##_t *)0)->lock) l) \
	UW_GUARD_LOCK(name##ext, _T->lock) \
	UW_GUARD_IS(name##ext, 1)
#define DEFINE_LOCK_GUARD_1_COND(...) \
	UW_PICK_4(__VA_ARGS__, UW_DEFINE_LOCK_GUARD_1_COND_4, UW_DEFINE_LOCK_GUARD_1_COND_3, 0)(__VA_ARGS__)

#define __guard_ptr(name) class_##name##_lock_ptr
/* guard(mutex)(&lock); */
#define guard(name) \
	class_##name##_t __UNIQUE_ID(guard) __cleanup(class_##name##_destructor) __maybe_unused = class_##name##_constructor
/* Runs the statement once. For a conditional guard, only if it got the lock. */
#define scoped_guard(name, ...) UW_SCOPED_GUARD(name, __UNIQUE_ID(once), __VA_ARGS__)
#define UW_SCOPED_GUARD(name, once, ...) \
	for (class_##name##_t uw_scope __cleanup(class_##name##_destructor) = class_##name##_constructor(__VA_ARGS__), \
				       *once = &uw_scope; \
	     once && (class_##name##_lock_ptr(&uw_scope) || !uw_guard_##name##_is_conditional); once = NULL)
/* scoped_cond_guard(mutex_intr, return -EINTR, &lock) { ... } */
#define scoped_cond_guard(name, fail, ...) UW_SCOPED_COND_GUARD(name, fail, __UNIQUE_ID(once), __VA_ARGS__)
#define UW_SCOPED_COND_GUARD(name, fail, once, ...) \
	for (class_##name##_t uw_scope __cleanup(class_##name##_destructor) = class_##name##_constructor(__VA_ARGS__), \
				       *once = &uw_scope; \
	     once; once = NULL) \
		if (!class_##name##_lock_ptr(&uw_scope) && uw_guard_##name##_is_conditional) { \
			fail; \
		} else
/*
 * A conditional guard as a variable: ACQUIRE(mutex_intr, lock)(&mutex); then ACQUIRE_ERR() is 0,
 * or the errno value to return.
 */
#define ACQUIRE(name, var) CLASS(name, var)
#define ACQUIRE_ERR(name, var) (class_##name##_lock_ptr(var) ? 0 : -EBUSY)
#endif

#endif
