/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Pseudo-random numbers. */
#ifndef UWORK_KERNEL_LINUX_PRANDOM_H
#define UWORK_KERNEL_LINUX_PRANDOM_H

#include <linux/random.h>

#define prandom_bytes(buf, count) get_random_bytes((buf), (count))
#define prandom_u32() get_random_u32()
#define prandom_u32_max(limit) get_random_u32_below(limit)

#endif
