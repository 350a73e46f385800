/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Bit masks. */
#ifndef UWORK_KERNEL_LINUX_BITS_H
#define UWORK_KERNEL_LINUX_BITS_H

#include <linux/types.h>

#define BIT(nr) (1UL << (nr))
#define BIT_ULL(nr) (1ULL << (nr))
#define BIT_MASK(nr) (1UL << ((nr) % (8 * sizeof(long))))
#define BITS_PER_TYPE(type) (sizeof(type) * 8)
#define BIT_WORD(nr) ((nr) / (8 * sizeof(long)))
#define GENMASK(h, l) ((~0UL << (l)) & (~0UL >> (8 * sizeof(long) - 1 - (h))))
#define GENMASK_ULL(h, l) ((~0ULL << (l)) & (~0ULL >> (63 - (h))))

#endif
