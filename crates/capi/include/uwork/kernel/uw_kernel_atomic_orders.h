/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Atomic operations with the orders that have no place in linux/atomic.h: each in three, by a macro. */
#ifndef UWORK_KERNEL_UW_KERNEL_ATOMIC_ORDERS_H
#define UWORK_KERNEL_UW_KERNEL_ATOMIC_ORDERS_H

#define UW_ATOMIC_XCHG(prefix, type, number, order, ORDER, ON_FAILURE) \
	static inline number prefix##_xchg_##order(type *v, number i) \
	{ \
		return __atomic_exchange_n(&v->counter, i, ORDER); \
	} \
	static inline bool prefix##_try_cmpxchg_##order(type *v, number *old, number i) \
	{ \
		return __atomic_compare_exchange_n(&v->counter, old, i, false, ORDER, ON_FAILURE); \
	} \
	static inline number prefix##_cmpxchg_##order(type *v, number old, number i) \
	{ \
		__atomic_compare_exchange_n(&v->counter, &old, i, false, ORDER, ON_FAILURE); \
		return old; \
	} \
	static inline number prefix##_fetch_or_##order(number i, type *v) \
	{ \
		return __atomic_fetch_or(&v->counter, i, ORDER); \
	} \
	static inline number prefix##_fetch_and_##order(number i, type *v) \
	{ \
		return __atomic_fetch_and(&v->counter, i, ORDER); \
	} \
	static inline number prefix##_fetch_xor_##order(number i, type *v) \
	{ \
		return __atomic_fetch_xor(&v->counter, i, ORDER); \
	} \
	static inline number prefix##_fetch_andnot_##order(number i, type *v) \
	{ \
		return __atomic_fetch_and(&v->counter, ~i, ORDER); \
	} \
	static inline number prefix##_fetch_inc_##order(type *v) \
	{ \
		return __atomic_fetch_add(&v->counter, 1, ORDER); \
	} \
	static inline number prefix##_fetch_dec_##order(type *v) \
	{ \
		return __atomic_fetch_sub(&v->counter, 1, ORDER); \
	}

#define UW_ATOMIC_REST(prefix, type, number) \
	UW_ATOMIC_XCHG(prefix, type, number, relaxed, __ATOMIC_RELAXED, __ATOMIC_RELAXED) \
	UW_ATOMIC_XCHG(prefix, type, number, acquire, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED) \
	UW_ATOMIC_XCHG(prefix, type, number, release, __ATOMIC_RELEASE, __ATOMIC_RELAXED) \
	static inline number prefix##_fetch_andnot(number i, type *v) \
	{ \
		return __atomic_fetch_and(&v->counter, ~i, __ATOMIC_SEQ_CST); \
	} \
	static inline bool prefix##_inc_unless_negative(type *v) \
	{ \
		number c = prefix##_read(v); \
		while (c >= 0 && !prefix##_try_cmpxchg(v, &c, c + 1)) \
			; \
		return c >= 0; \
	} \
	static inline bool prefix##_dec_unless_positive(type *v) \
	{ \
		number c = prefix##_read(v); \
		while (c <= 0 && !prefix##_try_cmpxchg(v, &c, c - 1)) \
			; \
		return c <= 0; \
	}

UW_ATOMIC_REST(atomic, atomic_t, int)
UW_ATOMIC_REST(atomic64, atomic64_t, s64)
UW_ATOMIC_REST(atomic_long, atomic_long_t, long)

#define atomic_cond_read_relaxed(v, condition) smp_cond_load_relaxed(&(v)->counter, condition)
#define atomic_cond_read_acquire(v, condition) smp_cond_load_acquire(&(v)->counter, condition)

#define xchg_relaxed(ptr, v) __atomic_exchange_n((ptr), (v), __ATOMIC_RELAXED)
#define xchg_acquire(ptr, v) __atomic_exchange_n((ptr), (v), __ATOMIC_ACQUIRE)
#define xchg_release(ptr, v) __atomic_exchange_n((ptr), (v), __ATOMIC_RELEASE)
#define UW_CMPXCHG(ptr, old, new_value, order) \
	__extension__({ \
		__typeof__(*(ptr)) uw_old = (old); \
		__atomic_compare_exchange_n((ptr), &uw_old, (new_value), false, (order), __ATOMIC_RELAXED); \
		uw_old; \
	})
#define cmpxchg_relaxed(ptr, old, new_value) UW_CMPXCHG(ptr, old, new_value, __ATOMIC_RELAXED)
#define cmpxchg_acquire(ptr, old, new_value) UW_CMPXCHG(ptr, old, new_value, __ATOMIC_ACQUIRE)
#define cmpxchg_release(ptr, old, new_value) UW_CMPXCHG(ptr, old, new_value, __ATOMIC_RELEASE)
#define cmpxchg_local(ptr, old, new_value) cmpxchg(ptr, old, new_value)
#define cmpxchg64(ptr, old, new_value) cmpxchg(ptr, old, new_value)
#define try_cmpxchg_relaxed(ptr, oldp, new_value) \
	__atomic_compare_exchange_n((ptr), (oldp), (new_value), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#define try_cmpxchg_acquire(ptr, oldp, new_value) \
	__atomic_compare_exchange_n((ptr), (oldp), (new_value), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#define try_cmpxchg_release(ptr, oldp, new_value) \
	__atomic_compare_exchange_n((ptr), (oldp), (new_value), false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)

#endif
