/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Random numbers. Includes the system's header of the same name. */
#ifndef UWORK_KERNEL_LINUX_RANDOM_H
#define UWORK_KERNEL_LINUX_RANDOM_H

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <linux/random.h>

#include "../uw_kernel.h"
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif
void get_random_bytes(void *buf, size_t count) UW_KERNEL_NAME(get_random_bytes);
#ifdef __cplusplus
}
#endif

static inline u32 get_random_u32(void)
{
	u32 value;

	get_random_bytes(&value, sizeof(value));
	return value;
}

static inline u64 get_random_u64(void)
{
	u64 value;

	get_random_bytes(&value, sizeof(value));
	return value;
}

static inline u32 get_random_u32_below(u32 limit)
{
	return limit ? (u32)((u64)get_random_u32() * limit >> 32) : 0;
}

#define get_random_u32_inclusive(least, most) ((least) + get_random_u32_below((most) - (least) + 1))
#define get_random_u32_above(floor) get_random_u32_inclusive((floor) + 1, 0xffffffffu)
#define get_random_int() get_random_u32()
#define get_random_u16() ((u16)get_random_u32())
#define get_random_u8() ((u8)get_random_u32())
#define get_random_long() ((unsigned long)get_random_u64())

/* The system has random numbers when programs run. Return 0. */
static inline int wait_for_random_bytes(void)
{
	return 0;
}

static inline int get_random_bytes_wait(void *buf, size_t count)
{
	get_random_bytes(buf, count);
	return 0;
}

#endif
