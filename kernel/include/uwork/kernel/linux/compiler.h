/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Compiler attributes and access macros. */
#ifndef UWORK_KERNEL_LINUX_COMPILER_H
#define UWORK_KERNEL_LINUX_COMPILER_H

#include <stddef.h>

#include <linux/stringify.h>

/* Tells the other headers that the program uses these headers' types and macros. */
#define UWORK_KERNEL_ENVIRONMENT 1

/*
 * What the kernel's makefiles define for a module. Sources that also have a half for user space or
 * for one CPU take the half for a module. pkg-config defines the same on the command line, for
 * sources that ask before their first include.
 */
#ifndef __KERNEL__
#define __KERNEL__ 1
#endif
#ifndef MODULE
#define MODULE 1
#endif
#ifndef CONFIG_SMP
#define CONFIG_SMP 1
#endif
#if defined(__LP64__) && !defined(CONFIG_64BIT)
#define CONFIG_64BIT 1
#endif
/* -DCONFIG_PWLOCKS=n, =y, or as preprocessor numbers. As in a kernel build, n is not defined. */
#define UW_CONFIG_ 1
#define UW_CONFIG_0 0
#define UW_CONFIG_1 1
#define UW_CONFIG_n 0
#define UW_CONFIG_y 1
#define UW_CONFIG_VALUE(value) UW_CONFIG_##value
#define UW_CONFIG_IS_SET(value) UW_CONFIG_VALUE(value)
#ifndef UW_KERNEL_WITHOUT_PWLOCKS
#ifndef CONFIG_PWLOCKS
#define CONFIG_PWLOCKS 1
#elif UW_CONFIG_IS_SET(CONFIG_PWLOCKS)
#undef CONFIG_PWLOCKS
#define CONFIG_PWLOCKS 1
#else
#undef CONFIG_PWLOCKS
#define UW_KERNEL_WITHOUT_PWLOCKS 1
#ifdef __cplusplus
extern "C"
#endif
void uw_kernel_without_pwlocks(void);
/* Per-CPU locks and caches are in mode 0. In every file, because the first use chooses the mode. */
__attribute__((__constructor__, __used__)) static void uw_kernel_fix_mode(void)
{
	uw_kernel_without_pwlocks();
}
#endif
#endif
#ifndef CONFIG_MODULES
#define CONFIG_MODULES 1
#endif
#ifndef CONFIG_MODULE_UNLOAD
#define CONFIG_MODULE_UNLOAD 1
#endif
#ifndef CONFIG_PRINTK
#define CONFIG_PRINTK 1
#endif
#ifndef CONFIG_BUG
#define CONFIG_BUG 1
#endif
#ifndef CONFIG_MMU
#define CONFIG_MMU 1
#endif

/* A number that #if understands. */
#ifndef BITS_PER_LONG
#ifdef __LP64__
#define BITS_PER_LONG 64
#else
#define BITS_PER_LONG 32
#endif
#endif
#ifndef BITS_PER_LONG_LONG
#define BITS_PER_LONG_LONG 64
#endif

/* With -std=c11 the compiler knows these keywords only by these names. */
#if defined(__STRICT_ANSI__) && !defined(__cplusplus)
#ifndef typeof
#define typeof __typeof__
#endif
#ifndef asm
#define asm __asm__
#endif
#endif

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

#ifndef barrier
#define barrier() __asm__ __volatile__("" : : : "memory")
#define barrier_data(ptr) __asm__ __volatile__("" : : "r"(ptr) : "memory")
#endif

/* Atomic accesses, so that a race detector accepts them. For scalars only, like the kernel's. */
#ifndef READ_ONCE
#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, val) __atomic_store_n(&(x), (__typeof__(x))(val), __ATOMIC_RELAXED)
#endif
#define smp_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define smp_store_release(p, v) __atomic_store_n((p), (__typeof__(*(p)))(v), __ATOMIC_RELEASE)
#define smp_store_mb(var, val) __atomic_store_n(&(var), (__typeof__(var))(val), __ATOMIC_SEQ_CST)
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UW_THREAD_SANITIZER
#endif
#elif defined(__SANITIZE_THREAD__)
#define UW_THREAD_SANITIZER
#endif
#ifdef UW_THREAD_SANITIZER
/* The thread sanitizer does not know fences. It knows that all changes of one word are ordered. */
__attribute__((weak)) int uw_kernel_fence;
#define smp_mb() ((void)__atomic_fetch_add(&uw_kernel_fence, 0, __ATOMIC_SEQ_CST))
#define smp_rmb() smp_mb()
#define smp_wmb() smp_mb()
#undef UW_THREAD_SANITIZER
#else
#define smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define smp_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif
#define mb() smp_mb()
#define rmb() smp_rmb()
#define wmb() smp_wmb()
#define smp_mb__before_atomic() smp_mb()
#define smp_mb__after_atomic() smp_mb()

#if defined(__x86_64__) || defined(__i386__)
#define cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define cpu_relax() __asm__ __volatile__("yield" : : : "memory")
#else
#define cpu_relax() barrier()
#endif

#define data_race(expr) (expr)

#ifndef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
#endif
#ifndef __maybe_unused
#define __maybe_unused __attribute__((__unused__))
#endif
#ifndef __must_check
#define __must_check __attribute__((__warn_unused_result__))
#endif
#ifndef __packed
#define __packed __attribute__((__packed__))
#endif
#ifndef __aligned
#define __aligned(x) __attribute__((__aligned__(x)))
#endif
#ifndef __cold
#define __cold __attribute__((__cold__))
#endif
#ifndef __printf
#define __printf(a, b)
#endif
#ifndef __weak
#define __weak __attribute__((__weak__))
#endif
#ifndef __used
#define __used __attribute__((__used__))
#endif
#ifndef fallthrough
#define fallthrough __attribute__((__fallthrough__))
#endif
#ifndef noinline
#define noinline __attribute__((__noinline__))
#endif

#define __user
#define __kernel
#define __force
#define __iomem
#define __percpu
#define __rcu
#define __acquires(x)
#define __releases(x)
#define __must_hold(x)
#define __cacheline_aligned __attribute__((__aligned__(64)))
#define ____cacheline_aligned __attribute__((__aligned__(64)))
#define ____cacheline_aligned_in_smp __attribute__((__aligned__(64)))
#define __read_mostly
#define __ro_after_init
#define __same_type(a, b) __builtin_types_compatible_p(__typeof__(a), __typeof__(b))

#define UW_PASTE_2(a, b) a##b
#define UW_PASTE(a, b) UW_PASTE_2(a, b)
#define __UNIQUE_ID(prefix) UW_PASTE(UW_PASTE(uw_unique_, prefix), __COUNTER__)

#ifndef __cplusplus
#ifndef static_assert
/* The message may be missing. */
#define static_assert(condition, ...) _Static_assert(condition, #condition " " __VA_ARGS__)
#endif
#endif

/* Annotations without a meaning here, and attributes. */
#define noinstr noinline
#define __hot __attribute__((__hot__))
#define __flatten __attribute__((__flatten__))
#define __no_sanitize_address __attribute__((__no_sanitize_address__))
#define __nocfi
#define __noclone
#define __assume_aligned(...) __attribute__((__assume_aligned__(__VA_ARGS__)))
#define __alloc_size(...) __attribute__((__alloc_size__(__VA_ARGS__)))
#define __realloc_size(...) __alloc_size(__VA_ARGS__)
#define ACCESS_PRIVATE(p, member) ((p)->member)
#define READ_ONCE_NOCHECK(x) READ_ONCE(x)
#define ASSERT_EXCLUSIVE_WRITER(var) ((void)0)
#define ASSERT_EXCLUSIVE_ACCESS(var) ((void)0)
#define __is_constexpr(x) __builtin_constant_p(x)
#define __must_be_array(a) 0
#define notrace
#define __sched
#define __lockfunc
#define __ref
#define __refdata
#define asmlinkage
#define __visible
#define __private
#define __nocast
#define __bitwise
#define __no_kcsan
#define __acquire(x) ((void)0)
#define __release(x) ((void)0)
/* As in the system's <linux/stddef.h>, which may come first. */
#ifndef __counted_by
#define __counted_by(member)
#endif
#define __nonstring
#define __deprecated
#define noinline_for_stack noinline
#define __noreturn __attribute__((__noreturn__))
#ifndef __always_unused
#define __always_unused __attribute__((__unused__))
#endif
#ifndef __pure
#define __pure __attribute__((__pure__))
#endif
#ifndef __malloc
#define __malloc __attribute__((__malloc__))
#endif
#ifndef __section
#define __section(name) __attribute__((__section__(name)))
#endif
#ifndef __PASTE
#define __PASTE(a, b) UW_PASTE(a, b)
#endif
#define unreachable() __builtin_unreachable()
#define OPTIMIZER_HIDE_VAR(var) __asm__("" : "=r"(var) : "0"(var))
#define _RET_IP_ ((unsigned long)__builtin_return_address(0))
#define _THIS_IP_ __extension__({ __label__ uw_here; uw_here: (unsigned long)&&uw_here; })
#define typeof_member(type, member) __typeof__(((type *)0)->member)
#define __cacheline_aligned_in_smp __attribute__((__aligned__(64)))

/* Warns if the types differ. The value is 1. */
#define typecheck(type, x) \
	__extension__({ \
		type uw_of_type; \
		__typeof__(x) uw_of_x; \
		(void)(&uw_of_type == &uw_of_x); \
		1; \
	})

/* Reads until the condition on VAL holds. The value is the last VAL. */
#define UW_LOAD_UNTIL(ptr, condition, order) \
	__extension__({ \
		__typeof__(*(ptr)) VAL; \
		while (VAL = __atomic_load_n((ptr), (order)), !(condition)) \
			cpu_relax(); \
		VAL; \
	})
#define smp_cond_load_relaxed(ptr, condition) UW_LOAD_UNTIL(ptr, condition, __ATOMIC_RELAXED)
#define smp_cond_load_acquire(ptr, condition) UW_LOAD_UNTIL(ptr, condition, __ATOMIC_ACQUIRE)
#define smp_acquire__after_ctrl_dep() smp_rmb()

/* 1 if the option is defined as 1, for example on the command line; 0 if it is not. */
#define UW_ARGUMENT_1 0,
#define UW_SECOND(first, second, ...) second
#define UW_IS_1(placeholder) UW_SECOND(placeholder 1, 0, 0)
#define UW_IS_DEFINED_2(value) UW_IS_1(UW_ARGUMENT_##value)
#define UW_IS_DEFINED(option) UW_IS_DEFINED_2(option)
#define IS_BUILTIN(option) UW_IS_DEFINED(option)
#define IS_MODULE(option) UW_IS_DEFINED(option##_MODULE)
#define IS_ENABLED(option) (IS_BUILTIN(option) || IS_MODULE(option))
#define IS_REACHABLE(option) IS_ENABLED(option)

#endif
