/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Hashes of memory. The values are not those of the kernel: they are for tables, not for formats. */
#ifndef UWORK_KERNEL_LINUX_JHASH_H
#define UWORK_KERNEL_LINUX_JHASH_H

#include <linux/bitops.h>
#include <linux/types.h>

#define JHASH_INITVAL 0xdeadbeefu
#define jhash_size(n) ((u32)1 << (n))
#define jhash_mask(n) (jhash_size(n) - 1)

/* Each word is multiplied and rotated into the state; at the end the bits are mixed once more. */
static inline u32 uw_hash_word(u32 hash, u32 word)
{
	return rol32(hash ^ word * 0xcc9e2d51u, 13) * 5 + 0xe6546b64u;
}

static inline u32 uw_hash_end(u32 hash, u32 length)
{
	hash ^= length;
	hash = (hash ^ hash >> 16) * 0x85ebca6bu;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
	return hash ^ hash >> 16;
}

static inline u32 jhash(const void *key, u32 length, u32 initval)
{
	const u8 *bytes = (const u8 *)key;
	u32 hash = initval, index;

	for (index = 0; index < length; index++)
		hash = uw_hash_word(hash, bytes[index]);
	return uw_hash_end(hash, length);
}

/* The length is in words. */
static inline u32 jhash2(const u32 *key, u32 length, u32 initval)
{
	u32 hash = initval, index;

	for (index = 0; index < length; index++)
		hash = uw_hash_word(hash, key[index]);
	return uw_hash_end(hash, length);
}

static inline u32 jhash_3words(u32 a, u32 b, u32 c, u32 initval)
{
	return uw_hash_end(uw_hash_word(uw_hash_word(uw_hash_word(initval, a), b), c), 12);
}

static inline u32 jhash_2words(u32 a, u32 b, u32 initval)
{
	return jhash_3words(a, b, 0, initval);
}

static inline u32 jhash_1word(u32 a, u32 initval)
{
	return jhash_3words(a, 0, 0, initval);
}

#endif
