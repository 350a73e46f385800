/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Data of each CPU. */
#ifndef UWORK_KERNEL_LINUX_PERCPU_H
#define UWORK_KERNEL_LINUX_PERCPU_H

#include <linux/cpumask.h>
#include <linux/smp.h>

#ifdef __cplusplus
extern "C" {
#endif
/* The copy of `cpu` of what is at `ptr` in the section from `start` to `stop`, or was allocated. */
void *uw_kernel_percpu(const void *start, const void *stop, const void *ptr, unsigned int cpu);
/* Zeroed; NULL without memory. */
void *uw_kernel_alloc_percpu(size_t size);
void uw_kernel_free_percpu(void *ptr);

/* Of the program or library that includes this. Empty, and so not there, without such variables. */
extern char __start_uw_percpu[] __attribute__((weak, visibility("hidden")));
extern char __stop_uw_percpu[] __attribute__((weak, visibility("hidden")));
#ifdef __cplusplus
}
#endif

/* Of a variable: the first CPU's copy, whose initial value the others get. */
#define UW_PERCPU_SECTION __attribute__((section("uw_percpu"), used))
#define DEFINE_PER_CPU(type, name) UW_PERCPU_SECTION __typeof__(type) name
#define DECLARE_PER_CPU(type, name) extern __typeof__(type) name
#define DEFINE_PER_CPU_ALIGNED(type, name) DEFINE_PER_CPU(type, name)
#define DEFINE_PER_CPU_SHARED_ALIGNED(type, name) DEFINE_PER_CPU(type, name)
#define DEFINE_PER_CPU_READ_MOSTLY(type, name) DEFINE_PER_CPU(type, name)

#define per_cpu_ptr(ptr, cpu) \
	((__typeof__(*(ptr)) *)uw_kernel_percpu(__start_uw_percpu, __stop_uw_percpu, (ptr), (unsigned int)(cpu)))
#define per_cpu(var, cpu) (*per_cpu_ptr(&(var), (cpu)))
#define this_cpu_ptr(ptr) per_cpu_ptr((ptr), smp_processor_id())
#define raw_cpu_ptr(ptr) this_cpu_ptr(ptr)
#define get_cpu_ptr(ptr) this_cpu_ptr(ptr)
#define put_cpu_ptr(ptr) ((void)(ptr))
#define get_cpu_var(var) (*this_cpu_ptr(&(var)))
#define put_cpu_var(var) ((void)&(var))

/* Atomic, since the thread may lose its CPU in between. */
#define this_cpu_read(var) __atomic_load_n(this_cpu_ptr(&(var)), __ATOMIC_RELAXED)
#define this_cpu_write(var, val) \
	__atomic_store_n(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED)
#define this_cpu_add(var, val) \
	((void)__atomic_fetch_add(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED))
#define this_cpu_sub(var, val) \
	((void)__atomic_fetch_sub(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED))
#define this_cpu_inc(var) this_cpu_add(var, 1)
#define this_cpu_dec(var) this_cpu_sub(var, 1)
#define this_cpu_inc_return(var) __atomic_add_fetch(this_cpu_ptr(&(var)), 1, __ATOMIC_RELAXED)
#define this_cpu_xchg(var, val) \
	__atomic_exchange_n(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_SEQ_CST)
#define __this_cpu_read(var) this_cpu_read(var)
#define __this_cpu_write(var, val) this_cpu_write(var, val)
#define __this_cpu_inc(var) this_cpu_inc(var)
#define __this_cpu_dec(var) this_cpu_dec(var)
#define __this_cpu_add(var, val) this_cpu_add(var, val)
#define raw_cpu_inc(var) this_cpu_inc(var)
#define raw_cpu_add(var, val) this_cpu_add(var, val)

#define alloc_percpu(type) ((__typeof__(type) *)uw_kernel_alloc_percpu(sizeof(type)))
#define alloc_percpu_gfp(type, gfp) alloc_percpu(type)
#define __alloc_percpu(size, align) uw_kernel_alloc_percpu(size)
#define free_percpu(ptr) uw_kernel_free_percpu(ptr)

#define this_cpu_add_return(var, val) \
	__atomic_add_fetch(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED)
#define this_cpu_sub_return(var, val) \
	__atomic_sub_fetch(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED)
#define this_cpu_dec_return(var) this_cpu_sub_return(var, 1)
#define this_cpu_and(var, val) \
	((void)__atomic_fetch_and(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED))
#define this_cpu_or(var, val) \
	((void)__atomic_fetch_or(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED))
/* What it was. */
#define this_cpu_cmpxchg(var, old, new_value) \
	__extension__({ \
		__typeof__(var) uw_old = (old); \
		__atomic_compare_exchange_n(this_cpu_ptr(&(var)), &uw_old, (new_value), false, __ATOMIC_SEQ_CST, \
					    __ATOMIC_RELAXED); \
		uw_old; \
	})
#define this_cpu_try_cmpxchg(var, oldp, new_value) \
	__atomic_compare_exchange_n(this_cpu_ptr(&(var)), (oldp), (new_value), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)
#define __this_cpu_sub(var, val) this_cpu_sub(var, val)
#define __this_cpu_xchg(var, val) this_cpu_xchg(var, val)
#define __this_cpu_add_return(var, val) this_cpu_add_return(var, val)
#define __this_cpu_inc_return(var) this_cpu_inc_return(var)
#define __this_cpu_dec_return(var) this_cpu_dec_return(var)
#define raw_cpu_read(var) this_cpu_read(var)
#define raw_cpu_write(var, val) this_cpu_write(var, val)
#define raw_cpu_sub(var, val) this_cpu_sub(var, val)
#define raw_cpu_dec(var) this_cpu_dec(var)
#define EXPORT_PER_CPU_SYMBOL(name) extern int uw_unused_declaration
#define EXPORT_PER_CPU_SYMBOL_GPL(name) extern int uw_unused_declaration

#endif
