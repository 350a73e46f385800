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

#endif
