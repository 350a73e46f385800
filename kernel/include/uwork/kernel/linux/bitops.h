/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Single bits, with atomic and non-atomic operations. */
#ifndef UWORK_KERNEL_LINUX_BITOPS_H
#define UWORK_KERNEL_LINUX_BITOPS_H

#include <linux/bits.h>
#include "../uw_kernel_string.h"

static inline unsigned long *uw_bit_word(unsigned long nr, const volatile unsigned long *addr)
{
	return (unsigned long *)(uintptr_t)addr + BIT_WORD(nr);
}

static inline bool test_bit(unsigned long nr, const volatile unsigned long *addr)
{
	return (__atomic_load_n(uw_bit_word(nr, addr), __ATOMIC_RELAXED) & BIT_MASK(nr)) != 0;
}

static inline bool test_bit_acquire(unsigned long nr, const volatile unsigned long *addr)
{
	return (__atomic_load_n(uw_bit_word(nr, addr), __ATOMIC_ACQUIRE) & BIT_MASK(nr)) != 0;
}

static inline void set_bit(unsigned long nr, volatile unsigned long *addr)
{
	__atomic_fetch_or(uw_bit_word(nr, addr), BIT_MASK(nr), __ATOMIC_RELAXED);
}

static inline void clear_bit(unsigned long nr, volatile unsigned long *addr)
{
	__atomic_fetch_and(uw_bit_word(nr, addr), ~BIT_MASK(nr), __ATOMIC_RELAXED);
}

static inline void change_bit(unsigned long nr, volatile unsigned long *addr)
{
	__atomic_fetch_xor(uw_bit_word(nr, addr), BIT_MASK(nr), __ATOMIC_RELAXED);
}

static inline bool test_and_set_bit(unsigned long nr, volatile unsigned long *addr)
{
	return (__atomic_fetch_or(uw_bit_word(nr, addr), BIT_MASK(nr), __ATOMIC_SEQ_CST) & BIT_MASK(nr)) != 0;
}

static inline bool test_and_clear_bit(unsigned long nr, volatile unsigned long *addr)
{
	return (__atomic_fetch_and(uw_bit_word(nr, addr), ~BIT_MASK(nr), __ATOMIC_SEQ_CST) & BIT_MASK(nr)) != 0;
}

static inline bool test_and_change_bit(unsigned long nr, volatile unsigned long *addr)
{
	return (__atomic_fetch_xor(uw_bit_word(nr, addr), BIT_MASK(nr), __ATOMIC_SEQ_CST) & BIT_MASK(nr)) != 0;
}

static inline bool test_and_set_bit_lock(unsigned long nr, volatile unsigned long *addr)
{
	return test_and_set_bit(nr, addr);
}

static inline void clear_bit_unlock(unsigned long nr, volatile unsigned long *addr)
{
	__atomic_fetch_and(uw_bit_word(nr, addr), ~BIT_MASK(nr), __ATOMIC_RELEASE);
}

static inline void __set_bit(unsigned long nr, volatile unsigned long *addr)
{
	*uw_bit_word(nr, addr) |= BIT_MASK(nr);
}

static inline void __clear_bit(unsigned long nr, volatile unsigned long *addr)
{
	*uw_bit_word(nr, addr) &= ~BIT_MASK(nr);
}

static inline void __change_bit(unsigned long nr, volatile unsigned long *addr)
{
	*uw_bit_word(nr, addr) ^= BIT_MASK(nr);
}

static inline bool __test_and_set_bit(unsigned long nr, volatile unsigned long *addr)
{
	bool was = (*uw_bit_word(nr, addr) & BIT_MASK(nr)) != 0;

	__set_bit(nr, addr);
	return was;
}

static inline bool __test_and_clear_bit(unsigned long nr, volatile unsigned long *addr)
{
	bool was = (*uw_bit_word(nr, addr) & BIT_MASK(nr)) != 0;

	__clear_bit(nr, addr);
	return was;
}

#define assign_bit(nr, addr, value) ((value) ? set_bit((nr), (addr)) : clear_bit((nr), (addr)))
#define __assign_bit(nr, addr, value) ((value) ? __set_bit((nr), (addr)) : __clear_bit((nr), (addr)))

static inline unsigned long __ffs(unsigned long word)
{
	return (unsigned long)__builtin_ctzl(word);
}

static inline unsigned long __ffs64(u64 x)
{
	return (unsigned long)__builtin_ctzll(x);
}

static inline unsigned long __fls(unsigned long word)
{
	return 8 * sizeof(long) - 1 - (unsigned long)__builtin_clzl(word);
}

static inline unsigned long ffz(unsigned long word)
{
	return __ffs(~word);
}

static inline int fls(unsigned int x)
{
	return x ? 32 - __builtin_clz(x) : 0;
}

static inline int fls64(u64 x)
{
	return x ? 64 - __builtin_clzll(x) : 0;
}

static inline unsigned int fls_long(unsigned long x)
{
	return (unsigned int)fls64(x);
}

/* The order of the smallest power of two that is at least `count`; -1 for 0. */
static inline int get_count_order_long(unsigned long count)
{
	return count ? fls64(count - 1) : -1;
}

static inline int get_count_order(unsigned int count)
{
	return get_count_order_long(count);
}

static inline unsigned int hweight32(u32 x)
{
	return (unsigned int)__builtin_popcount(x);
}

static inline unsigned int hweight8(u8 x)
{
	return hweight32(x);
}

static inline unsigned int hweight16(u16 x)
{
	return hweight32(x);
}

static inline unsigned long hweight64(u64 x)
{
	return (unsigned long)__builtin_popcountll(x);
}

static inline unsigned long hweight_long(unsigned long x)
{
	return (unsigned long)__builtin_popcountl(x);
}

/*
 * The first set bit from `start` on (the first clear one if `inverted` is all ones); `size` if
 * there is none.
 */
static inline unsigned long uw_next_bit(const unsigned long *addr, unsigned long size, unsigned long start,
					unsigned long inverted)
{
	while (start < size) {
		unsigned long word = (addr[BIT_WORD(start)] ^ inverted) >> (start % (8 * sizeof(long)));

		if (word) {
			start += __ffs(word);
			return start < size ? start : size;
		}
		start = (BIT_WORD(start) + 1) * 8 * sizeof(long);
	}
	return size;
}

static inline unsigned long find_next_bit(const unsigned long *addr, unsigned long size, unsigned long start)
{
	return uw_next_bit(addr, size, start, 0);
}

static inline unsigned long find_next_zero_bit(const unsigned long *addr, unsigned long size, unsigned long start)
{
	return uw_next_bit(addr, size, start, ~0UL);
}

static inline unsigned long find_first_bit(const unsigned long *addr, unsigned long size)
{
	return uw_next_bit(addr, size, 0, 0);
}

static inline unsigned long find_first_zero_bit(const unsigned long *addr, unsigned long size)
{
	return uw_next_bit(addr, size, 0, ~0UL);
}

#define UW_FIND_BIT_OF_TWO(name, op) \
	static inline unsigned long find_next_##name##_bit(const unsigned long *a, const unsigned long *b, \
							   unsigned long size, unsigned long start) \
	{ \
		for (; start < size; start++) { \
			if ((a[BIT_WORD(start)] op b[BIT_WORD(start)]) & BIT_MASK(start)) \
				return start; \
		} \
		return size; \
	} \
	static inline unsigned long find_first_##name##_bit(const unsigned long *a, const unsigned long *b, \
							    unsigned long size) \
	{ \
		return find_next_##name##_bit(a, b, size, 0); \
	}
UW_FIND_BIT_OF_TWO(and, &)
UW_FIND_BIT_OF_TWO(andnot, &~)
UW_FIND_BIT_OF_TWO(or, |)

/* The same with a third operand, and the bit of two operands that has `n` before it. */
static inline unsigned long find_first_and_and_bit(const unsigned long *a, const unsigned long *b,
						   const unsigned long *c, unsigned long size)
{
	unsigned long bit = find_first_and_bit(a, b, size);

	while (bit < size && !test_bit(bit, c))
		bit = find_next_and_bit(a, b, size, bit + 1);
	return bit;
}

#define UW_FIND_NTH_BIT_OF_TWO(name) \
	static inline unsigned long find_nth_##name##_bit(const unsigned long *a, const unsigned long *b, \
							  unsigned long size, unsigned long n) \
	{ \
		unsigned long bit = find_first_##name##_bit(a, b, size); \
		while (n-- > 0 && bit < size) \
			bit = find_next_##name##_bit(a, b, size, bit + 1); \
		return bit; \
	}
UW_FIND_NTH_BIT_OF_TWO(and)
UW_FIND_NTH_BIT_OF_TWO(andnot)

/* From `start` to the end, and then from the beginning; `size` if there is none. */
static inline unsigned long find_next_bit_wrap(const unsigned long *addr, unsigned long size, unsigned long start)
{
	unsigned long bit = find_next_bit(addr, size, start);

	if (bit < size)
		return bit;
	bit = find_first_bit(addr, start);
	return bit < start ? bit : size;
}

static inline unsigned long find_next_and_bit_wrap(const unsigned long *a, const unsigned long *b, unsigned long size,
						   unsigned long start)
{
	unsigned long bit = find_next_and_bit(a, b, size, start);

	if (bit < size)
		return bit;
	bit = find_first_and_bit(a, b, start);
	return bit < start ? bit : size;
}

static inline unsigned long uw_bits_set(const unsigned long *addr, unsigned long size)
{
	unsigned long bit = find_first_bit(addr, size), count = 0;

	for (; bit < size; bit = find_next_bit(addr, size, bit + 1))
		count++;
	return count;
}

/* The last set bit; `size` if there is none. */
static inline unsigned long find_last_bit(const unsigned long *addr, unsigned long size)
{
	unsigned long bit = size;

	while (bit > 0) {
		if (addr[BIT_WORD(bit - 1)] & BIT_MASK(bit - 1))
			return bit - 1;
		bit--;
	}
	return size;
}

/* The index of the set bit that has `n` set bits before it; `size` if there is none. */
static inline unsigned long find_nth_bit(const unsigned long *addr, unsigned long size, unsigned long n)
{
	unsigned long bit = find_first_bit(addr, size);

	while (n-- > 0 && bit < size)
		bit = find_next_bit(addr, size, bit + 1);
	return bit;
}

#define for_each_set_bit(bit, addr, size) \
	for ((bit) = (__typeof__(bit))find_first_bit((addr), (size)); (bit) < (__typeof__(bit))(size); \
	     (bit) = (__typeof__(bit))find_next_bit((addr), (size), (unsigned long)(bit) + 1))
#define for_each_set_bit_wrap(bit, addr, size, start) \
	for (unsigned long uw_left = ((bit) = (__typeof__(bit))find_next_bit_wrap((addr), (size), (start)), \
				      uw_bits_set((addr), (size))); \
	     uw_left > 0; \
	     (bit) = (__typeof__(bit))(--uw_left > 0 ? find_next_bit_wrap((addr), (size), (unsigned long)(bit) + 1) : (size)))
/* The runs of set bits, from `b` up to before `e`. */
#define for_each_set_bitrange(b, e, addr, size) \
	for ((b) = (__typeof__(b))find_first_bit((addr), (size)); \
	     (e) = (__typeof__(e))find_next_zero_bit((addr), (size), (unsigned long)(b)), (unsigned long)(b) < (unsigned long)(size); \
	     (b) = (__typeof__(b))find_next_bit((addr), (size), (unsigned long)(e)))
#define for_each_set_bit_from(bit, addr, size) \
	for ((bit) = (__typeof__(bit))find_next_bit((addr), (size), (unsigned long)(bit)); (bit) < (__typeof__(bit))(size); \
	     (bit) = (__typeof__(bit))find_next_bit((addr), (size), (unsigned long)(bit) + 1))
#define for_each_clear_bit(bit, addr, size) \
	for ((bit) = (__typeof__(bit))find_first_zero_bit((addr), (size)); (bit) < (__typeof__(bit))(size); \
	     (bit) = (__typeof__(bit))find_next_zero_bit((addr), (size), (unsigned long)(bit) + 1))
#define for_each_and_bit(bit, a, b, size) \
	for ((bit) = (__typeof__(bit))find_first_and_bit((a), (b), (size)); (bit) < (__typeof__(bit))(size); \
	     (bit) = (__typeof__(bit))find_next_and_bit((a), (b), (size), (unsigned long)(bit) + 1))
#define for_each_andnot_bit(bit, a, b, size) \
	for ((bit) = (__typeof__(bit))find_first_andnot_bit((a), (b), (size)); (bit) < (__typeof__(bit))(size); \
	     (bit) = (__typeof__(bit))find_next_andnot_bit((a), (b), (size), (unsigned long)(bit) + 1))
#define for_each_or_bit(bit, a, b, size) \
	for ((bit) = (__typeof__(bit))find_first_or_bit((a), (b), (size)); (bit) < (__typeof__(bit))(size); \
	     (bit) = (__typeof__(bit))find_next_or_bit((a), (b), (size), (unsigned long)(bit) + 1))
#define for_each_clear_bit_from(bit, addr, size) \
	for ((bit) = (__typeof__(bit))find_next_zero_bit((addr), (size), (unsigned long)(bit)); \
	     (bit) < (__typeof__(bit))(size); \
	     (bit) = (__typeof__(bit))find_next_zero_bit((addr), (size), (unsigned long)(bit) + 1))

static inline u32 rol32(u32 word, unsigned int shift)
{
	return word << (shift & 31) | word >> (-shift & 31);
}

static inline u32 ror32(u32 word, unsigned int shift)
{
	return word >> (shift & 31) | word << (-shift & 31);
}

static inline u64 rol64(u64 word, unsigned int shift)
{
	return word << (shift & 63) | word >> (-shift & 63);
}

static inline u64 ror64(u64 word, unsigned int shift)
{
	return word >> (shift & 63) | word << (-shift & 63);
}

static inline u16 rol16(u16 word, unsigned int shift)
{
	return (u16)(word << (shift & 15) | word >> (-shift & 15));
}

static inline u16 ror16(u16 word, unsigned int shift)
{
	return (u16)(word >> (shift & 15) | word << (-shift & 15));
}

static inline u8 rol8(u8 word, unsigned int shift)
{
	return (u8)(word << (shift & 7) | word >> (-shift & 7));
}

static inline u8 ror8(u8 word, unsigned int shift)
{
	return (u8)(word >> (shift & 7) | word << (-shift & 7));
}

static inline s32 sign_extend32(u32 value, int index)
{
	unsigned int shift = 31 - (unsigned int)index;

	return (s32)(value << shift) >> shift;
}

static inline s64 sign_extend64(u64 value, int index)
{
	unsigned int shift = 63 - (unsigned int)index;

	return (s64)(value << shift) >> shift;
}

#endif
