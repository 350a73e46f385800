/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arrays of bits. */
#ifndef UWORK_KERNEL_LINUX_BITMAP_H
#define UWORK_KERNEL_LINUX_BITMAP_H

#include <string.h>

#include "../uw_kernel_slab.h"
#include <linux/bitops.h>

static inline void bitmap_zero(unsigned long *map, unsigned int bits)
{
	memset(map, 0, BITS_TO_LONGS(bits) * sizeof(long));
}

static inline void bitmap_fill(unsigned long *map, unsigned int bits)
{
	memset(map, 0xff, BITS_TO_LONGS(bits) * sizeof(long));
}

static inline unsigned int bitmap_weight(const unsigned long *map, unsigned int bits)
{
	unsigned long bit = find_first_bit(map, bits);
	unsigned int count = 0;

	for (; bit < bits; bit = find_next_bit(map, bits, bit + 1))
		count++;
	return count;
}

static inline bool bitmap_empty(const unsigned long *map, unsigned int bits)
{
	return find_first_bit(map, bits) >= bits;
}

static inline bool bitmap_full(const unsigned long *map, unsigned int bits)
{
	return find_first_zero_bit(map, bits) >= bits;
}

static inline void bitmap_copy(unsigned long *to, const unsigned long *from, unsigned int bits)
{
	memcpy(to, from, BITS_TO_LONGS(bits) * sizeof(long));
}

static inline void bitmap_set(unsigned long *map, unsigned int start, unsigned int count)
{
	for (; count > 0; count--)
		__set_bit(start++, map);
}

static inline void bitmap_clear(unsigned long *map, unsigned int start, unsigned int count)
{
	for (; count > 0; count--)
		__clear_bit(start++, map);
}

/* The mask of the valid bits of the last word. */
static inline unsigned long uw_bitmap_last(unsigned int bits)
{
	return bits % (8 * sizeof(long)) ? ~(~0UL << bits % (8 * sizeof(long))) : ~0UL;
}

#define UW_BITMAP_OP(name, type, answer, op) \
	static inline type name(unsigned long *to, const unsigned long *a, const unsigned long *b, unsigned int bits) \
	{ \
		size_t word; \
		for (word = 0; word < BITS_TO_LONGS(bits); word++) \
			to[word] = a[word] op b[word]; \
		answer; \
	}
UW_BITMAP_OP(bitmap_and, bool, return !bitmap_empty(to, bits), &)
UW_BITMAP_OP(bitmap_andnot, bool, return !bitmap_empty(to, bits), &~)
UW_BITMAP_OP(bitmap_or, void, (void)0, |)
UW_BITMAP_OP(bitmap_xor, void, (void)0, ^)

static inline void bitmap_complement(unsigned long *to, const unsigned long *from, unsigned int bits)
{
	size_t word;

	for (word = 0; word < BITS_TO_LONGS(bits); word++)
		to[word] = ~from[word];
}

static inline bool bitmap_equal(const unsigned long *a, const unsigned long *b, unsigned int bits)
{
	size_t word, words = BITS_TO_LONGS(bits);

	for (word = 0; word < words; word++) {
		if ((a[word] ^ b[word]) & (word + 1 == words ? uw_bitmap_last(bits) : ~0UL))
			return false;
	}
	return true;
}

static inline bool bitmap_intersects(const unsigned long *a, const unsigned long *b, unsigned int bits)
{
	size_t word, words = BITS_TO_LONGS(bits);

	for (word = 0; word < words; word++) {
		if (a[word] & b[word] & (word + 1 == words ? uw_bitmap_last(bits) : ~0UL))
			return true;
	}
	return false;
}

static inline unsigned long *bitmap_zalloc(unsigned int bits, gfp_t flags)
{
	return (unsigned long *)kcalloc(BITS_TO_LONGS(bits), sizeof(long), flags);
}

#define bitmap_alloc(bits, flags) bitmap_zalloc((bits), (flags))

static inline void bitmap_free(const unsigned long *map)
{
	kfree(map);
}

/*
 * The first of `count` clear bits in a row, at a multiple of align_mask + 1. More than `size` if
 * there are none.
 */
static inline unsigned long bitmap_find_next_zero_area(unsigned long *map, unsigned long size, unsigned long start,
						       unsigned int count, unsigned long align_mask)
{
	for (;;) {
		unsigned long set;

		start = (find_next_zero_bit(map, size, start) + align_mask) & ~align_mask;
		if (start + count > size)
			return start + count;
		set = find_next_bit(map, start + count, start);
		if (set >= start + count)
			return start;
		start = set + 1;
	}
}

static inline bool bitmap_subset(const unsigned long *a, const unsigned long *b, unsigned int bits)
{
	return find_first_andnot_bit(a, b, bits) >= bits;
}

#endif
