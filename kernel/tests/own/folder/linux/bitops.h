/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef OWN_BITOPS_H
#define OWN_BITOPS_H

#define BIT(n) (1UL << (n))

static inline void set_bit(long nr, volatile unsigned long *addr)
{
	addr[nr / 64] |= BIT(nr % 64);
}

#endif
