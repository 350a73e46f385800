/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fields of words. The mask must be a constant. */
#ifndef UWORK_KERNEL_LINUX_BITFIELD_H
#define UWORK_KERNEL_LINUX_BITFIELD_H

#include <linux/bits.h>

#define FIELD_GET(mask, word) ((__typeof__(mask))(((word) & (mask)) >> __builtin_ctzll(mask)))
#define FIELD_PREP(mask, value) (((__typeof__(mask))(value) << __builtin_ctzll(mask)) & (mask))
#define FIELD_FIT(mask, value) (!((((__typeof__(mask))(value)) << __builtin_ctzll(mask)) & ~(mask)))
#define FIELD_MAX(mask) ((__typeof__(mask))((mask) >> __builtin_ctzll(mask)))

/* The same for masks that need not be constant. */
#define field_get(mask, word) FIELD_GET(mask, word)
#define field_prep(mask, value) FIELD_PREP(mask, value)

#define UW_FIELD_BITS(bits) \
	static inline u##bits u##bits##_encode_bits(u##bits value, u##bits mask) \
	{ \
		return (u##bits)((u64)value << __builtin_ctzll(mask) & mask); \
	} \
	static inline u##bits u##bits##_get_bits(u##bits word, u##bits mask) \
	{ \
		return (u##bits)((word & mask) >> __builtin_ctzll(mask)); \
	} \
	static inline u##bits u##bits##_replace_bits(u##bits old, u##bits value, u##bits mask) \
	{ \
		return (u##bits)((old & (u##bits)~mask) | u##bits##_encode_bits(value, mask)); \
	} \
	static inline void u##bits##p_replace_bits(u##bits *p, u##bits value, u##bits mask) \
	{ \
		*p = u##bits##_replace_bits(*p, value, mask); \
	}
UW_FIELD_BITS(8)
UW_FIELD_BITS(16)
UW_FIELD_BITS(32)
UW_FIELD_BITS(64)

#endif
