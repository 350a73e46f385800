/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fields of words. The mask must be a constant. */
#ifndef UWORK_KERNEL_LINUX_BITFIELD_H
#define UWORK_KERNEL_LINUX_BITFIELD_H

#include <linux/bits.h>

#define FIELD_GET(mask, word) ((__typeof__(mask))(((word) & (mask)) >> __builtin_ctzll(mask)))
#define FIELD_PREP(mask, value) (((__typeof__(mask))(value) << __builtin_ctzll(mask)) & (mask))
#define FIELD_FIT(mask, value) (!((((__typeof__(mask))(value)) << __builtin_ctzll(mask)) & ~(mask)))
#define FIELD_MAX(mask) ((__typeof__(mask))((mask) >> __builtin_ctzll(mask)))

#endif
