/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Division and rounding. */
#ifndef UWORK_KERNEL_LINUX_MATH_H
#define UWORK_KERNEL_LINUX_MATH_H

#include <linux/types.h>

#ifndef DIV_ROUND_UP
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#endif
#define DIV_ROUND_UP_ULL(n, d) DIV_ROUND_UP((unsigned long long)(n), (d))
#define DIV_ROUND_CLOSEST(n, d) (((n) + (d) / 2) / (d))
#define roundup(x, y) (((x) + (y) - 1) / (y) * (y))
#define rounddown(x, y) ((x) - (x) % (y))
#define round_up(x, y) ((((x) - 1) | ((__typeof__(x))(y) - 1)) + 1)
#define round_down(x, y) ((x) & ~((__typeof__(x))(y) - 1))
#ifndef __cplusplus
#define abs_diff(a, b) ((a) > (b) ? (a) - (b) : (b) - (a))
#endif

#define DIV_ROUND_DOWN_ULL(n, d) ((unsigned long long)(n) / (d))
#define DIV_ROUND_CLOSEST_ULL(n, d) DIV_ROUND_CLOSEST((unsigned long long)(n), (d))
#define mult_frac(x, n, d) \
	__extension__({ \
		__typeof__(x) uw_x = (x); \
		uw_x / (d) * (n) + uw_x % (d) * (n) / (d); \
	})

static inline u32 reciprocal_scale(u32 value, u32 end)
{
	return (u32)((u64)value * end >> 32);
}

static inline u64 int_pow(u64 base, unsigned int exponent)
{
	u64 result = 1;

	while (exponent-- > 0)
		result *= base;
	return result;
}

static inline unsigned long int_sqrt64(u64 x)
{
	u64 root = 0, bit = 1ULL << 62;

	for (; bit; bit >>= 2) {
		u64 with = root + bit;

		root >>= 1;
		if (x >= with) {
			x -= with;
			root += bit;
		}
	}
	return (unsigned long)root;
}

static inline unsigned long int_sqrt(unsigned long x)
{
	return int_sqrt64(x);
}

static inline unsigned long gcd(unsigned long a, unsigned long b)
{
	while (b) {
		unsigned long rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static inline unsigned long lcm(unsigned long a, unsigned long b)
{
	return a && b ? a / gcd(a, b) * b : 0;
}

#endif
