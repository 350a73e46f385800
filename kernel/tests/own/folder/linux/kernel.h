/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef OWN_KERNEL_H
#define OWN_KERNEL_H

#include <stdio.h>

#include <linux/types.h>

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define pr_info(...) printf(__VA_ARGS__)
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define likely(x) (x)
#define __packed __attribute__((packed))

#endif
