/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Bit masks. */
#ifndef UWORK_KERNEL_LINUX_BITS_H
#define UWORK_KERNEL_LINUX_BITS_H

#include <linux/types.h>

#define BIT(nr) (1UL << (nr))
#define BIT_ULL(nr) (1ULL << (nr))
#define BIT_ULL_MASK(nr) (1ULL << ((nr) % BITS_PER_LONG_LONG))
#define BIT_ULL_WORD(nr) ((nr) / BITS_PER_LONG_LONG)
#define BIT_MASK(nr) (1UL << ((nr) % BITS_PER_LONG))
#define BITS_PER_TYPE(type) (sizeof(type) * 8)
#define BIT_WORD(nr) ((nr) / BITS_PER_LONG)
#define GENMASK(h, l) ((~0UL << (l)) & (~0UL >> (BITS_PER_LONG - 1 - (h))))
#define GENMASK_ULL(h, l) ((~0ULL << (l)) & (~0ULL >> (63 - (h))))

#define UW_GENMASK(type, h, l) ((type)((type)~(type)0 >> (sizeof(type) * 8 - 1 - (h)) & (type)((type)~(type)0 << (l))))
#define GENMASK_U8(h, l) UW_GENMASK(u8, h, l)
#define GENMASK_U16(h, l) UW_GENMASK(u16, h, l)
#define GENMASK_U32(h, l) UW_GENMASK(u32, h, l)
#define GENMASK_U64(h, l) UW_GENMASK(u64, h, l)
#define BIT_U8(nr) ((u8)BIT(nr))
#define BIT_U16(nr) ((u16)BIT(nr))
#define BIT_U32(nr) ((u32)BIT(nr))
#define BIT_U64(nr) ((u64)BIT_ULL(nr))

#endif
