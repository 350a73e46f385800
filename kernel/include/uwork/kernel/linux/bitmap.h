/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arrays of bits. */
#ifndef UWORK_KERNEL_LINUX_BITMAP_H
#define UWORK_KERNEL_LINUX_BITMAP_H

#include "../uw_kernel_slab.h"
#include <linux/bitops.h>
#include <linux/errno.h>

#ifdef __cplusplus
extern "C" {
#endif
/*
 * Parses "0-3,8" and the like, with the forms 0-15:2/4 (the first two of each four), N for the last
 * bit, and all in any case. Returns 0, -EINVAL or -ERANGE.
 */
int bitmap_parselist(const char *text, unsigned long *map, int bits) UW_KERNEL_NAME(bitmap_parselist);
#ifdef __cplusplus
}
#endif

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

static inline unsigned long *bitmap_alloc(unsigned int bits, gfp_t flags)
{
	return (unsigned long *)kmalloc_array(BITS_TO_LONGS(bits), sizeof(long), flags);
}

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

/*
 * Regions of 2^order bits, at multiples of their size. The first returns the position of a region
 * that it has found clear and sets it, or -ENOMEM; the last -EBUSY if a bit of the region is set.
 */
static inline int bitmap_find_free_region(unsigned long *map, unsigned int bits, int order)
{
	unsigned int count = 1u << order;
	unsigned long at = bitmap_find_next_zero_area(map, bits, 0, count, count - 1);

	if (at + count > bits)
		return -ENOMEM;
	bitmap_set(map, (unsigned int)at, count);
	return (int)at;
}

static inline void bitmap_release_region(unsigned long *map, unsigned int at, int order)
{
	bitmap_clear(map, at, 1u << order);
}

static inline int bitmap_allocate_region(unsigned long *map, unsigned int at, int order)
{
	unsigned long end = at + (1ul << order);

	if (find_next_bit(map, end, at) < end)
		return -EBUSY;
	bitmap_set(map, at, 1u << order);
	return 0;
}

static inline unsigned int bitmap_weight_and(const unsigned long *a, const unsigned long *b, unsigned int bits)
{
	unsigned long bit = find_first_and_bit(a, b, bits);
	unsigned int count = 0;

	for (; bit < bits; bit = find_next_and_bit(a, b, bits, bit + 1))
		count++;
	return count;
}

static inline bool bitmap_subset(const unsigned long *a, const unsigned long *b, unsigned int bits)
{
	return find_first_andnot_bit(a, b, bits) >= bits;
}

static inline void bitmap_shift_left(unsigned long *to, const unsigned long *from, unsigned int shift, unsigned int bits)
{
	unsigned int bit;

	/* From the end, because both may be the same. */
	for (bit = bits; bit-- > 0;)
		__assign_bit(bit, to, bit >= shift && test_bit(bit - shift, from));
}

static inline void bitmap_shift_right(unsigned long *to, const unsigned long *from, unsigned int shift, unsigned int bits)
{
	unsigned int bit;

	for (bit = 0; bit < bits; bit++)
		__assign_bit(bit, to, shift < bits - bit && test_bit(bit + shift, from));
}

/* Takes the bits of `mask` from `with`, and the others from `old`. */
static inline void bitmap_replace(unsigned long *to, const unsigned long *old, const unsigned long *with,
				  const unsigned long *mask, unsigned int bits)
{
	size_t word;

	for (word = 0; word < BITS_TO_LONGS(bits); word++)
		to[word] = (old[word] & ~mask[word]) | (with[word] & mask[word]);
}

static inline void bitmap_from_arr32(unsigned long *to, const u32 *from, unsigned int bits)
{
	unsigned int bit;

	/* The rest of the last word as well. */
	bitmap_zero(to, bits);
	for (bit = 0; bit < bits; bit++)
		__assign_bit(bit, to, from[bit / 32] >> (bit % 32) & 1);
}

static inline void bitmap_to_arr32(u32 *to, const unsigned long *from, unsigned int bits)
{
	unsigned int bit;

	for (bit = 0; bit < bits; bit++) {
		u32 mask = 1u << (bit % 32);

		if (bit % 32 == 0)
			to[bit / 32] = 0;
		to[bit / 32] |= test_bit(bit, from) ? mask : 0;
	}
}

static inline void bitmap_from_u64(unsigned long *to, u64 mask)
{
	unsigned int bit;

	for (bit = 0; bit < 64; bit++)
		__assign_bit(bit, to, mask >> bit & 1);
}

#endif
