/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Per-CPU data. */
#ifndef UWORK_KERNEL_LINUX_PERCPU_H
#define UWORK_KERNEL_LINUX_PERCPU_H

#include <linux/cpumask.h>
#include <linux/smp.h>

#ifdef __cplusplus
extern "C" {
#endif
/*
 * The distance between the data of neighbouring CPUs, and the most that can be allocated for each
 * CPU.
 */
#define UW_KERNEL_PERCPU_UNIT (1ul << 25)

/*
 * Zeroed memory. NULL, with a warning, if there is no memory or the size or alignment is not
 * supported.
 */
void *uw_kernel_alloc_percpu(size_t size, size_t align);
void uw_kernel_free_percpu(void *ptr);
/* The distance from the section to the CPUs' copies. The result is cached in *place. */
intptr_t uw_kernel_percpu_section(const char *start, const char *stop, intptr_t *place);

/*
 * The section of the program or library that includes this header. Without per-CPU variables it
 * does not exist, and the address is NULL.
 */
extern char __start_uw_percpu[] __attribute__((weak, visibility("hidden")));
extern char __stop_uw_percpu[] __attribute__((weak, visibility("hidden")));
extern intptr_t uw_kernel_percpu_place __attribute__((weak, visibility("hidden")));
__attribute__((weak, visibility("hidden"))) intptr_t uw_kernel_percpu_place = 0;

/*
 * The copy for `cpu`, which is below nr_cpu_ids, of the object at `ptr`: a variable, allocated
 * data, or a part of either.
 */
static inline void *uw_kernel_percpu(const volatile void *ptr, unsigned int cpu)
{
	uintptr_t at = (uintptr_t)ptr, start = (uintptr_t)__start_uw_percpu;

	if (at - start < (uintptr_t)__stop_uw_percpu - start) {
		intptr_t place = __atomic_load_n(&uw_kernel_percpu_place, __ATOMIC_ACQUIRE);

		if (!place)
			place = uw_kernel_percpu_section(__start_uw_percpu, __stop_uw_percpu, &uw_kernel_percpu_place);
		at += (uintptr_t)place;
	}
	return (void *)(at + cpu * UW_KERNEL_PERCPU_UNIT);
}
#ifdef __cplusplus
}
#endif

/*
 * The variable itself holds the initial value, which each CPU's copy gets at the first use. It is
 * not a copy.
 */
#define UW_PERCPU_SECTION __attribute__((section("uw_percpu"), used))
#define DEFINE_PER_CPU(type, name) UW_PERCPU_SECTION __typeof__(type) name
#define DECLARE_PER_CPU(type, name) extern __typeof__(type) name
#define DEFINE_PER_CPU_ALIGNED(type, name) DEFINE_PER_CPU(type, name)
#define DEFINE_PER_CPU_SHARED_ALIGNED(type, name) DEFINE_PER_CPU(type, name)
#define DEFINE_PER_CPU_READ_MOSTLY(type, name) DEFINE_PER_CPU(type, name)
#define DEFINE_PER_CPU_PAGE_ALIGNED(type, name) DEFINE_PER_CPU(type, name) __attribute__((__aligned__(4096)))
#define EXPORT_PER_CPU_SYMBOL(name) extern int uw_unused_declaration
#define EXPORT_PER_CPU_SYMBOL_GPL(name) extern int uw_unused_declaration

#define per_cpu_ptr(ptr, cpu) ((__typeof__(*(ptr)) *)uw_kernel_percpu((ptr), (unsigned int)(cpu)))
#define per_cpu(var, cpu) (*per_cpu_ptr(&(var), (cpu)))
#define this_cpu_ptr(ptr) per_cpu_ptr((ptr), smp_processor_id())
#define raw_cpu_ptr(ptr) this_cpu_ptr(ptr)
#define get_cpu_ptr(ptr) (preempt_disable(), this_cpu_ptr(ptr))
#define put_cpu_ptr(ptr) ((void)(ptr), preempt_enable())
#define get_cpu_var(var) (*get_cpu_ptr(&(var)))
#define put_cpu_var(var) put_cpu_ptr(&(var))

#define alloc_percpu(type) ((__typeof__(type) *)uw_kernel_alloc_percpu(sizeof(type), __alignof__(type)))
#define alloc_percpu_gfp(type, gfp) alloc_percpu(type)
#define __alloc_percpu(size, align) uw_kernel_alloc_percpu((size), (align))
#define __alloc_percpu_gfp(size, align, gfp) __alloc_percpu((size), (align))

static inline void free_percpu(void __percpu *ptr)
{
	uw_kernel_free_percpu(ptr);
}

/* Atomic, because the thread may migrate in between. */
#define this_cpu_read(var) __atomic_load_n(this_cpu_ptr(&(var)), __ATOMIC_RELAXED)
#define this_cpu_write(var, val) \
	__atomic_store_n(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED)
#define this_cpu_add(var, val) \
	((void)__atomic_fetch_add(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED))
#define this_cpu_sub(var, val) \
	((void)__atomic_fetch_sub(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED))
#define this_cpu_inc(var) this_cpu_add(var, 1)
#define this_cpu_dec(var) this_cpu_sub(var, 1)

#define this_cpu_add_return(var, val) \
	__atomic_add_fetch(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED)
#define this_cpu_sub_return(var, val) \
	__atomic_sub_fetch(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED)
#define this_cpu_inc_return(var) this_cpu_add_return(var, 1)
#define this_cpu_dec_return(var) this_cpu_sub_return(var, 1)
#define this_cpu_and(var, val) \
	((void)__atomic_fetch_and(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED))
#define this_cpu_or(var, val) \
	((void)__atomic_fetch_or(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_RELAXED))
/* Return the old value. */
#define this_cpu_xchg(var, val) \
	__atomic_exchange_n(this_cpu_ptr(&(var)), (__typeof__(var))(val), __ATOMIC_SEQ_CST)
#define this_cpu_cmpxchg(var, old, new_value) \
	__extension__({ \
		__typeof__(var) uw_old = (old); \
		__atomic_compare_exchange_n(this_cpu_ptr(&(var)), &uw_old, (new_value), false, __ATOMIC_SEQ_CST, \
					    __ATOMIC_RELAXED); \
		uw_old; \
	})
#define this_cpu_try_cmpxchg(var, oldp, new_value) \
	__atomic_compare_exchange_n(this_cpu_ptr(&(var)), (oldp), (new_value), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)
#define __this_cpu_read(var) this_cpu_read(var)
#define __this_cpu_write(var, val) this_cpu_write(var, val)
#define __this_cpu_inc(var) this_cpu_inc(var)
#define __this_cpu_dec(var) this_cpu_dec(var)
#define __this_cpu_add(var, val) this_cpu_add(var, val)
#define __this_cpu_sub(var, val) this_cpu_sub(var, val)
#define __this_cpu_xchg(var, val) this_cpu_xchg(var, val)
#define __this_cpu_add_return(var, val) this_cpu_add_return(var, val)
#define __this_cpu_inc_return(var) this_cpu_inc_return(var)
#define __this_cpu_dec_return(var) this_cpu_dec_return(var)
#define __this_cpu_sub_return(var, val) this_cpu_sub_return(var, val)
#define __this_cpu_and(var, val) this_cpu_and(var, val)
#define __this_cpu_or(var, val) this_cpu_or(var, val)
#define __this_cpu_cmpxchg(var, old, new_value) this_cpu_cmpxchg(var, old, new_value)
#define __this_cpu_ptr(ptr) this_cpu_ptr(ptr)
#define raw_cpu_inc(var) this_cpu_inc(var)
#define raw_cpu_add(var, val) this_cpu_add(var, val)
#define raw_cpu_add_return(var, val) this_cpu_add_return(var, val)
#define raw_cpu_inc_return(var) this_cpu_inc_return(var)
#define raw_cpu_xchg(var, val) this_cpu_xchg(var, val)
#define raw_cpu_cmpxchg(var, old, new_value) this_cpu_cmpxchg(var, old, new_value)
#define raw_cpu_read(var) this_cpu_read(var)
#define raw_cpu_write(var, val) this_cpu_write(var, val)
#define raw_cpu_sub(var, val) this_cpu_sub(var, val)
#define raw_cpu_dec(var) this_cpu_dec(var)

#endif
