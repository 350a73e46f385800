/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Division of 64-bit numbers. */
#ifndef UWORK_KERNEL_LINUX_MATH64_H
#define UWORK_KERNEL_LINUX_MATH64_H

#include <linux/math.h>

#define do_div(n, base) \
	__extension__({ \
		u32 uw_base = (u32)(base); \
		u32 uw_rem = (u32)((u64)(n) % uw_base); \
		(n) = (u64)(n) / uw_base; \
		uw_rem; \
	})

static inline u64 div_u64(u64 dividend, u32 divisor)
{
	return dividend / divisor;
}

static inline s64 div_s64(s64 dividend, s32 divisor)
{
	return dividend / divisor;
}

static inline u64 div64_u64(u64 dividend, u64 divisor)
{
	return dividend / divisor;
}

static inline s64 div64_s64(s64 dividend, s64 divisor)
{
	return dividend / divisor;
}

static inline u64 div_u64_rem(u64 dividend, u32 divisor, u32 *remainder)
{
	*remainder = (u32)(dividend % divisor);
	return dividend / divisor;
}

static inline u64 div64_u64_rem(u64 dividend, u64 divisor, u64 *remainder)
{
	*remainder = dividend % divisor;
	return dividend / divisor;
}

#define div64_ul(x, y) div64_u64((x), (y))
#define DIV64_U64_ROUND_UP(n, d) DIV_ROUND_UP((u64)(n), (u64)(d))

/* Uses 128 bits. __extension__ permits the type under every standard. */
__extension__ typedef unsigned __int128 uw_u128;

static inline u64 mul_u64_u64_div_u64(u64 a, u64 b, u64 c)
{
	return (u64)((uw_u128)a * b / c);
}

static inline u64 mul_u64_u32_div(u64 a, u32 b, u32 c)
{
	return mul_u64_u64_div_u64(a, b, c);
}

#define DIV_U64_ROUND_UP(n, d) DIV_ROUND_UP((u64)(n), (u32)(d))
#define DIV64_U64_ROUND_CLOSEST(n, d) DIV_ROUND_CLOSEST((u64)(n), (u64)(d))

static inline u64 mul_u64_u32_shr(u64 a, u32 b, unsigned int shift)
{
	return (u64)((uw_u128)a * b >> shift);
}

static inline u64 mul_u64_u64_shr(u64 a, u64 b, unsigned int shift)
{
	return (u64)((uw_u128)a * b >> shift);
}

static inline u64 mul_u32_u32(u32 a, u32 b)
{
	return (u64)a * b;
}

static inline u32 iter_div_u64_rem(u64 dividend, u32 divisor, u64 *remainder)
{
	*remainder = dividend % divisor;
	return (u32)(dividend / divisor);
}

#endif
