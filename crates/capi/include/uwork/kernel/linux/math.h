/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Division and rounding. */
#ifndef UWORK_KERNEL_LINUX_MATH_H
#define UWORK_KERNEL_LINUX_MATH_H

#include <linux/types.h>

#ifndef DIV_ROUND_UP
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#endif
#define DIV_ROUND_UP_ULL(n, d) DIV_ROUND_UP((unsigned long long)(n), (d))
#define DIV_ROUND_CLOSEST(n, d) (((n) + (d) / 2) / (d))
#define roundup(x, y) (((x) + (y) - 1) / (y) * (y))
#define rounddown(x, y) ((x) - (x) % (y))
#define round_up(x, y) ((((x) - 1) | ((__typeof__(x))(y) - 1)) + 1)
#define round_down(x, y) ((x) & ~((__typeof__(x))(y) - 1))
#ifndef __cplusplus
#define abs_diff(a, b) ((a) > (b) ? (a) - (b) : (b) - (a))
#endif

#endif
