/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arithmetic that reports overflow. */
#ifndef UWORK_KERNEL_LINUX_OVERFLOW_H
#define UWORK_KERNEL_LINUX_OVERFLOW_H

#include <linux/types.h>

#define check_add_overflow(a, b, d) __builtin_add_overflow((a), (b), (d))
#define check_sub_overflow(a, b, d) __builtin_sub_overflow((a), (b), (d))
#define check_mul_overflow(a, b, d) __builtin_mul_overflow((a), (b), (d))

static inline size_t size_mul(size_t a, size_t b)
{
	size_t product;

	return check_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

static inline size_t size_add(size_t a, size_t b)
{
	size_t sum;

	return check_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

#define array_size(a, b) size_mul((a), (b))
#define struct_size(p, member, count) \
	size_add(sizeof(*(p)), size_mul((size_t)(count), sizeof(*(p)->member)))
#define flex_array_size(p, member, count) size_mul((size_t)(count), sizeof(*(p)->member))

static inline size_t size_sub(size_t a, size_t b)
{
	return a < b || a == SIZE_MAX ? SIZE_MAX : a - b;
}

#define array3_size(a, b, c) size_mul(size_mul((a), (b)), (c))
#define struct_size_t(type, member, count) struct_size((type *)NULL, member, count)

#define is_signed_type(type) ((type)-1 < (type)1)
#define type_max(type) \
	((type)(is_signed_type(type) ? ((((type)1 << (sizeof(type) * 8 - 2)) - 1) * 2 + 1) : (type)-1))
#define type_min(type) ((type)(is_signed_type(type) ? -type_max(type) - 1 : 0))
#define wrapping_add(type, a, b) \
	__extension__({ type uw_result; (void)__builtin_add_overflow((a), (b), &uw_result); uw_result; })
#define wrapping_sub(type, a, b) \
	__extension__({ type uw_result; (void)__builtin_sub_overflow((a), (b), &uw_result); uw_result; })
/* True if bits of `a` are lost, or the result is negative. */
#define check_shl_overflow(a, shift, d) \
	__extension__({ \
		__typeof__(a) uw_a = (a); \
		__typeof__(d) uw_d = (d); \
		u64 uw_full = (u64)uw_a; \
		unsigned int uw_by = (unsigned int)(shift); \
		bool uw_fits = uw_by < sizeof(*uw_d) * 8; \
		*uw_d = (__typeof__(*uw_d))(uw_fits ? uw_full << uw_by : 0); \
		!uw_fits || (is_signed_type(__typeof__(uw_a)) && (s64)uw_full < 0) || \
			(is_signed_type(__typeof__(*uw_d)) && (s64)*uw_d < 0) || \
			(uw_fits && (u64)*uw_d >> uw_by != uw_full); \
	})
/* A structure on the stack with room for `count` elements of its last member. */
#define DEFINE_RAW_FLEX(type, name, member, count) \
	union { \
		u8 bytes[sizeof(type) + sizeof(((type *)0)->member[0]) * (count)]; \
		type obj; \
	} name##_u = { .bytes = { 0 } }; \
	type *name = &name##_u.obj
#define DEFINE_FLEX(type, name, member, counter, count) \
	DEFINE_RAW_FLEX(type, name, member, count); \
	name->counter = (count)

#endif
