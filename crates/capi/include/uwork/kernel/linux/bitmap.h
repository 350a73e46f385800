/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arrays of bits. */
#ifndef UWORK_KERNEL_LINUX_BITMAP_H
#define UWORK_KERNEL_LINUX_BITMAP_H

#include <string.h>

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

#endif
