/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Atomic counters. */
#ifndef UWORK_KERNEL_LINUX_ATOMIC_H
#define UWORK_KERNEL_LINUX_ATOMIC_H

#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/*
 * Operations that the kernel documents as fully ordered are fully ordered. The _relaxed, _acquire
 * and _release variants have the order of their name.
 */

static inline int atomic_read(const atomic_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);
}

static inline int atomic_read_acquire(const atomic_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_ACQUIRE);
}

static inline void atomic_set(atomic_t *v, int i)
{
	__atomic_store_n(&v->counter, i, __ATOMIC_RELAXED);
}

static inline void atomic_set_release(atomic_t *v, int i)
{
	__atomic_store_n(&v->counter, i, __ATOMIC_RELEASE);
}

static inline void atomic_add(int i, atomic_t *v)
{
	__atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED);
}

static inline int atomic_add_return(int i, atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline int atomic_fetch_add(int i, atomic_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline int atomic_add_return_relaxed(int i, atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_add_relaxed(int i, atomic_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED);
}

static inline int atomic_add_return_acquire(int i, atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline int atomic_fetch_add_acquire(int i, atomic_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline int atomic_add_return_release(int i, atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_RELEASE);
}

static inline int atomic_fetch_add_release(int i, atomic_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_RELEASE);
}

static inline void atomic_sub(int i, atomic_t *v)
{
	__atomic_fetch_sub(&v->counter, i, __ATOMIC_RELAXED);
}

static inline int atomic_sub_return(int i, atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline int atomic_fetch_sub(int i, atomic_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline int atomic_sub_return_relaxed(int i, atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_sub_relaxed(int i, atomic_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_RELAXED);
}

static inline int atomic_sub_return_acquire(int i, atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline int atomic_fetch_sub_acquire(int i, atomic_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline int atomic_sub_return_release(int i, atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_RELEASE);
}

static inline int atomic_fetch_sub_release(int i, atomic_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_RELEASE);
}

static inline void atomic_inc(atomic_t *v)
{
	__atomic_fetch_add(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_inc(atomic_t *v)
{
	return __atomic_fetch_add(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline bool atomic_inc_and_test(atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_SEQ_CST) == 0;
}

static inline int atomic_inc_return(atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline int atomic_inc_return_relaxed(atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline int atomic_inc_return_acquire(atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_ACQUIRE);
}

static inline int atomic_inc_return_release(atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_RELEASE);
}

static inline void atomic_dec(atomic_t *v)
{
	__atomic_fetch_sub(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_dec(atomic_t *v)
{
	return __atomic_fetch_sub(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline bool atomic_dec_and_test(atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_SEQ_CST) == 0;
}

static inline int atomic_dec_return(atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline int atomic_dec_return_relaxed(atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline int atomic_dec_return_acquire(atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_ACQUIRE);
}

static inline int atomic_dec_return_release(atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_RELEASE);
}

static inline void atomic_and(int i, atomic_t *v)
{
	__atomic_fetch_and(&v->counter, i, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_and(int i, atomic_t *v)
{
	return __atomic_fetch_and(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic_or(int i, atomic_t *v)
{
	__atomic_fetch_or(&v->counter, i, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_or(int i, atomic_t *v)
{
	return __atomic_fetch_or(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic_xor(int i, atomic_t *v)
{
	__atomic_fetch_xor(&v->counter, i, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_xor(int i, atomic_t *v)
{
	return __atomic_fetch_xor(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic_andnot(int i, atomic_t *v)
{
	__atomic_fetch_and(&v->counter, ~i, __ATOMIC_RELAXED);
}

static inline bool atomic_sub_and_test(int i, atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST) == 0;
}

static inline bool atomic_add_negative(int i, atomic_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST) < 0;
}

static inline int atomic_xchg(atomic_t *v, int i)
{
	return __atomic_exchange_n(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline int atomic_cmpxchg(atomic_t *v, int old, int i)
{
	__atomic_compare_exchange_n(&v->counter, &old, i, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	return old;
}

static inline bool atomic_try_cmpxchg(atomic_t *v, int *old, int i)
{
	return __atomic_compare_exchange_n(&v->counter, old, i, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_add_unless(atomic_t *v, int a, int u)
{
	int c = atomic_read(v);

	while (c != u && !atomic_try_cmpxchg(v, &c, c + a))
		;
	return c;
}

static inline bool atomic_add_unless(atomic_t *v, int a, int u)
{
	return atomic_fetch_add_unless(v, a, u) != u;
}

static inline bool atomic_inc_not_zero(atomic_t *v)
{
	return atomic_add_unless(v, 1, 0);
}

static inline int atomic_dec_if_positive(atomic_t *v)
{
	int c = atomic_read(v);

	while (c > 0 && !atomic_try_cmpxchg(v, &c, c - 1))
		;
	return c - 1;
}

static inline s64 atomic64_read(const atomic64_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);
}

static inline s64 atomic64_read_acquire(const atomic64_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_ACQUIRE);
}

static inline void atomic64_set(atomic64_t *v, s64 i)
{
	__atomic_store_n(&v->counter, i, __ATOMIC_RELAXED);
}

static inline void atomic64_set_release(atomic64_t *v, s64 i)
{
	__atomic_store_n(&v->counter, i, __ATOMIC_RELEASE);
}

static inline void atomic64_add(s64 i, atomic64_t *v)
{
	__atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_add_return(s64 i, atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline s64 atomic64_fetch_add(s64 i, atomic64_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline s64 atomic64_add_return_relaxed(s64 i, atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_fetch_add_relaxed(s64 i, atomic64_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_add_return_acquire(s64 i, atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline s64 atomic64_fetch_add_acquire(s64 i, atomic64_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline s64 atomic64_add_return_release(s64 i, atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_RELEASE);
}

static inline s64 atomic64_fetch_add_release(s64 i, atomic64_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_RELEASE);
}

static inline void atomic64_sub(s64 i, atomic64_t *v)
{
	__atomic_fetch_sub(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_sub_return(s64 i, atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline s64 atomic64_fetch_sub(s64 i, atomic64_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline s64 atomic64_sub_return_relaxed(s64 i, atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_fetch_sub_relaxed(s64 i, atomic64_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_sub_return_acquire(s64 i, atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline s64 atomic64_fetch_sub_acquire(s64 i, atomic64_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline s64 atomic64_sub_return_release(s64 i, atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_RELEASE);
}

static inline s64 atomic64_fetch_sub_release(s64 i, atomic64_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_RELEASE);
}

static inline void atomic64_inc(atomic64_t *v)
{
	__atomic_fetch_add(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline s64 atomic64_fetch_inc(atomic64_t *v)
{
	return __atomic_fetch_add(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline bool atomic64_inc_and_test(atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_SEQ_CST) == 0;
}

static inline s64 atomic64_inc_return(atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline s64 atomic64_inc_return_relaxed(atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline s64 atomic64_inc_return_acquire(atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_ACQUIRE);
}

static inline s64 atomic64_inc_return_release(atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_RELEASE);
}

static inline void atomic64_dec(atomic64_t *v)
{
	__atomic_fetch_sub(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline s64 atomic64_fetch_dec(atomic64_t *v)
{
	return __atomic_fetch_sub(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline bool atomic64_dec_and_test(atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_SEQ_CST) == 0;
}

static inline s64 atomic64_dec_return(atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline s64 atomic64_dec_return_relaxed(atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline s64 atomic64_dec_return_acquire(atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_ACQUIRE);
}

static inline s64 atomic64_dec_return_release(atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_RELEASE);
}

static inline void atomic64_and(s64 i, atomic64_t *v)
{
	__atomic_fetch_and(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_fetch_and(s64 i, atomic64_t *v)
{
	return __atomic_fetch_and(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic64_or(s64 i, atomic64_t *v)
{
	__atomic_fetch_or(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_fetch_or(s64 i, atomic64_t *v)
{
	return __atomic_fetch_or(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic64_xor(s64 i, atomic64_t *v)
{
	__atomic_fetch_xor(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_fetch_xor(s64 i, atomic64_t *v)
{
	return __atomic_fetch_xor(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic64_andnot(s64 i, atomic64_t *v)
{
	__atomic_fetch_and(&v->counter, ~i, __ATOMIC_RELAXED);
}

static inline bool atomic64_sub_and_test(s64 i, atomic64_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST) == 0;
}

static inline bool atomic64_add_negative(s64 i, atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST) < 0;
}

static inline s64 atomic64_xchg(atomic64_t *v, s64 i)
{
	return __atomic_exchange_n(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline s64 atomic64_cmpxchg(atomic64_t *v, s64 old, s64 i)
{
	__atomic_compare_exchange_n(&v->counter, &old, i, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	return old;
}

static inline bool atomic64_try_cmpxchg(atomic64_t *v, s64 *old, s64 i)
{
	return __atomic_compare_exchange_n(&v->counter, old, i, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline s64 atomic64_fetch_add_unless(atomic64_t *v, s64 a, s64 u)
{
	s64 c = atomic64_read(v);

	while (c != u && !atomic64_try_cmpxchg(v, &c, c + a))
		;
	return c;
}

static inline bool atomic64_add_unless(atomic64_t *v, s64 a, s64 u)
{
	return atomic64_fetch_add_unless(v, a, u) != u;
}

static inline bool atomic64_inc_not_zero(atomic64_t *v)
{
	return atomic64_add_unless(v, 1, 0);
}

static inline s64 atomic64_dec_if_positive(atomic64_t *v)
{
	s64 c = atomic64_read(v);

	while (c > 0 && !atomic64_try_cmpxchg(v, &c, c - 1))
		;
	return c - 1;
}

static inline long atomic_long_read(const atomic_long_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);
}

static inline long atomic_long_read_acquire(const atomic_long_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_ACQUIRE);
}

static inline void atomic_long_set(atomic_long_t *v, long i)
{
	__atomic_store_n(&v->counter, i, __ATOMIC_RELAXED);
}

static inline void atomic_long_set_release(atomic_long_t *v, long i)
{
	__atomic_store_n(&v->counter, i, __ATOMIC_RELEASE);
}

static inline void atomic_long_add(long i, atomic_long_t *v)
{
	__atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED);
}

static inline long atomic_long_add_return(long i, atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline long atomic_long_fetch_add(long i, atomic_long_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline long atomic_long_add_return_relaxed(long i, atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_RELAXED);
}

static inline long atomic_long_fetch_add_relaxed(long i, atomic_long_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED);
}

static inline long atomic_long_add_return_acquire(long i, atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline long atomic_long_fetch_add_acquire(long i, atomic_long_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline long atomic_long_add_return_release(long i, atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_RELEASE);
}

static inline long atomic_long_fetch_add_release(long i, atomic_long_t *v)
{
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_RELEASE);
}

static inline void atomic_long_sub(long i, atomic_long_t *v)
{
	__atomic_fetch_sub(&v->counter, i, __ATOMIC_RELAXED);
}

static inline long atomic_long_sub_return(long i, atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline long atomic_long_fetch_sub(long i, atomic_long_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline long atomic_long_sub_return_relaxed(long i, atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_RELAXED);
}

static inline long atomic_long_fetch_sub_relaxed(long i, atomic_long_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_RELAXED);
}

static inline long atomic_long_sub_return_acquire(long i, atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline long atomic_long_fetch_sub_acquire(long i, atomic_long_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_ACQUIRE);
}

static inline long atomic_long_sub_return_release(long i, atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_RELEASE);
}

static inline long atomic_long_fetch_sub_release(long i, atomic_long_t *v)
{
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_RELEASE);
}

static inline void atomic_long_inc(atomic_long_t *v)
{
	__atomic_fetch_add(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline long atomic_long_fetch_inc(atomic_long_t *v)
{
	return __atomic_fetch_add(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline bool atomic_long_inc_and_test(atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_SEQ_CST) == 0;
}

static inline long atomic_long_inc_return(atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline long atomic_long_inc_return_relaxed(atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline long atomic_long_inc_return_acquire(atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_ACQUIRE);
}

static inline long atomic_long_inc_return_release(atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_RELEASE);
}

static inline void atomic_long_dec(atomic_long_t *v)
{
	__atomic_fetch_sub(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline long atomic_long_fetch_dec(atomic_long_t *v)
{
	return __atomic_fetch_sub(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline bool atomic_long_dec_and_test(atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_SEQ_CST) == 0;
}

static inline long atomic_long_dec_return(atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline long atomic_long_dec_return_relaxed(atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline long atomic_long_dec_return_acquire(atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_ACQUIRE);
}

static inline long atomic_long_dec_return_release(atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_RELEASE);
}

static inline void atomic_long_and(long i, atomic_long_t *v)
{
	__atomic_fetch_and(&v->counter, i, __ATOMIC_RELAXED);
}

static inline long atomic_long_fetch_and(long i, atomic_long_t *v)
{
	return __atomic_fetch_and(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic_long_or(long i, atomic_long_t *v)
{
	__atomic_fetch_or(&v->counter, i, __ATOMIC_RELAXED);
}

static inline long atomic_long_fetch_or(long i, atomic_long_t *v)
{
	return __atomic_fetch_or(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic_long_xor(long i, atomic_long_t *v)
{
	__atomic_fetch_xor(&v->counter, i, __ATOMIC_RELAXED);
}

static inline long atomic_long_fetch_xor(long i, atomic_long_t *v)
{
	return __atomic_fetch_xor(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline void atomic_long_andnot(long i, atomic_long_t *v)
{
	__atomic_fetch_and(&v->counter, ~i, __ATOMIC_RELAXED);
}

static inline bool atomic_long_sub_and_test(long i, atomic_long_t *v)
{
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST) == 0;
}

static inline bool atomic_long_add_negative(long i, atomic_long_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST) < 0;
}

static inline long atomic_long_xchg(atomic_long_t *v, long i)
{
	return __atomic_exchange_n(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline long atomic_long_cmpxchg(atomic_long_t *v, long old, long i)
{
	__atomic_compare_exchange_n(&v->counter, &old, i, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	return old;
}

static inline bool atomic_long_try_cmpxchg(atomic_long_t *v, long *old, long i)
{
	return __atomic_compare_exchange_n(&v->counter, old, i, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline long atomic_long_fetch_add_unless(atomic_long_t *v, long a, long u)
{
	long c = atomic_long_read(v);

	while (c != u && !atomic_long_try_cmpxchg(v, &c, c + a))
		;
	return c;
}

static inline bool atomic_long_add_unless(atomic_long_t *v, long a, long u)
{
	return atomic_long_fetch_add_unless(v, a, u) != u;
}

static inline bool atomic_long_inc_not_zero(atomic_long_t *v)
{
	return atomic_long_add_unless(v, 1, 0);
}

static inline long atomic_long_dec_if_positive(atomic_long_t *v)
{
	long c = atomic_long_read(v);

	while (c > 0 && !atomic_long_try_cmpxchg(v, &c, c - 1))
		;
	return c - 1;
}

#define xchg(ptr, v) __atomic_exchange_n((ptr), (v), __ATOMIC_SEQ_CST)
#define cmpxchg(ptr, old, new_value) \
	__extension__({ \
		__typeof__(*(ptr)) uw_old = (old); \
		__atomic_compare_exchange_n((ptr), &uw_old, (new_value), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED); \
		uw_old; \
	})
#define try_cmpxchg(ptr, oldp, new_value) \
	__atomic_compare_exchange_n((ptr), (oldp), (new_value), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)

#include "../uw_kernel_atomic_orders.h"

/* Returns 1 with the lock held if the counter has become 0. */
static inline int atomic_dec_and_mutex_lock(atomic_t *v, struct mutex *lock)
{
	if (atomic_add_unless(v, -1, 1))
		return 0;
	mutex_lock(lock);
	if (atomic_dec_and_test(v))
		return 1;
	mutex_unlock(lock);
	return 0;
}

static inline int atomic_dec_and_lock(atomic_t *v, spinlock_t *lock)
{
	if (atomic_add_unless(v, -1, 1))
		return 0;
	spin_lock(lock);
	if (atomic_dec_and_test(v))
		return 1;
	spin_unlock(lock);
	return 0;
}

#define atomic_dec_and_lock_irqsave(v, lock, flags) ((flags) = 0, atomic_dec_and_lock((v), (lock)))

#endif
