/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Minimum and maximum. */
#ifndef UWORK_KERNEL_LINUX_MINMAX_H
#define UWORK_KERNEL_LINUX_MINMAX_H

#include <linux/types.h>

/* C++ has functions with these names. */
#ifndef __cplusplus
#define UW_CHOOSE(x, op, y, a, b) \
	__extension__({ \
		__typeof__(x) a = (x); \
		__typeof__(y) b = (y); \
		a op b ? a : b; \
	})
#ifndef min
#define min(x, y) UW_CHOOSE(x, <, y, __UNIQUE_ID(x_), __UNIQUE_ID(y_))
#define max(x, y) UW_CHOOSE(x, >, y, __UNIQUE_ID(x_), __UNIQUE_ID(y_))
#endif
#define min3(x, y, z) min((__typeof__(x))min(x, y), z)
#define max3(x, y, z) max((__typeof__(x))max(x, y), z)
#define UW_ARRAY_END(array, count, op) \
	__extension__({ \
		const __typeof__((array)[0]) *uw_at = (array); \
		size_t uw_count = (count); \
		__typeof__((array)[0] + 0) uw_end = uw_at[--uw_count]; \
		while (uw_count > 0) { \
			uw_count--; \
			if (uw_at[uw_count] op uw_end) \
				uw_end = uw_at[uw_count]; \
		} \
		uw_end; \
	})
/* Of an array that is not empty. */
#define min_array(array, count) UW_ARRAY_END(array, count, <)
#define max_array(array, count) UW_ARRAY_END(array, count, >)
#define in_range(val, start, len) ((u64)(val) - (u64)(start) < (u64)(len))
#define clamp(val, lo, hi) min((__typeof__(val))max(val, lo), hi)
#define umin(x, y) min((u64)(x), (u64)(y))
#define umax(x, y) max((u64)(x), (u64)(y))
#define min_not_zero(x, y) \
	__extension__({ \
		__typeof__(x) uw_x = (x); \
		__typeof__(y) uw_y = (y); \
		uw_x == 0 ? uw_y : (uw_y == 0 ? uw_x : min(uw_x, uw_y)); \
	})
#define min_t(type, x, y) min((type)(x), (type)(y))
#define max_t(type, x, y) max((type)(x), (type)(y))
#define clamp_t(type, val, lo, hi) min_t(type, max_t(type, val, lo), hi)
#define clamp_val(val, lo, hi) clamp_t(__typeof__(val), val, lo, hi)
#define swap(a, b) \
	do { \
		__typeof__(a) uw_swap = (a); \
		(a) = (b); \
		(b) = uw_swap; \
	} while (0)
#endif

#endif
