/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Hashes of numbers: the upper bits of the product with a large odd constant. */
#ifndef UWORK_KERNEL_LINUX_HASH_H
#define UWORK_KERNEL_LINUX_HASH_H

#include <linux/types.h>

static inline u32 hash_32(u32 value, unsigned int bits)
{
	return (u32)(value * 0x9e3779b1u) >> (32 - bits);
}

static inline u32 hash_64(u64 value, unsigned int bits)
{
	return (u32)((value * 0x9e3779b97f4a7c15ull) >> (64 - bits));
}

static inline u32 hash_long(unsigned long value, unsigned int bits)
{
	return hash_64(value, bits);
}

static inline u32 hash_ptr(const void *ptr, unsigned int bits)
{
	return hash_64((uintptr_t)ptr, bits);
}

#endif
