/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checksums, bit by bit: for small inputs. The caller inverts them where a format asks for it. */
#ifndef UWORK_KERNEL_LINUX_CRC32_H
#define UWORK_KERNEL_LINUX_CRC32_H

#include <linux/bitrev.h>

/* `polynomial` in the order of its bits here: the lowest first. */
static inline u32 uw_crc32(u32 crc, const void *from, size_t size, u32 polynomial)
{
	const u8 *byte = (const u8 *)from;
	int bit;

	while (size-- > 0) {
		crc ^= *byte++;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
	}
	return crc;
}

static inline u32 crc32_le(u32 crc, const void *from, size_t size)
{
	return uw_crc32(crc, from, size, 0xedb88320u);
}

static inline u32 crc32c(u32 crc, const void *from, size_t size)
{
	return uw_crc32(crc, from, size, 0x82f63b78u);
}

static inline u32 crc32_be(u32 crc, const void *from, size_t size)
{
	const u8 *byte = (const u8 *)from;
	int bit;

	while (size-- > 0) {
		crc ^= (u32)*byte++ << 24;
		for (bit = 0; bit < 8; bit++)
			crc = crc << 1 ^ (crc & 0x80000000u ? 0x04c11db7u : 0);
	}
	return crc;
}

#define crc32(seed, data, length) crc32_le((seed), (data), (length))
#define ether_crc_le(length, data) crc32_le(~0u, (data), (length))
#define ether_crc(length, data) bitrev32(crc32_le(~0u, (data), (length)))

#endif
