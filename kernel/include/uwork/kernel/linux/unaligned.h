/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Integers at unaligned addresses. */
#ifndef UWORK_KERNEL_LINUX_UNALIGNED_H
#define UWORK_KERNEL_LINUX_UNALIGNED_H

#include <string.h>

#include <asm/byteorder.h>
#include <linux/types.h>

#define get_unaligned(ptr) \
	__extension__({ \
		__typeof__(*(ptr)) uw_value; \
		memcpy(&uw_value, (ptr), sizeof(uw_value)); \
		uw_value; \
	})
#define put_unaligned(value, ptr) \
	do { \
		__typeof__(*(ptr)) uw_value = (value); \
		memcpy((ptr), &uw_value, sizeof(uw_value)); \
	} while (0)

#define UW_UNALIGNED(bits, order) \
	static inline u##bits get_unaligned_##order##bits(const void *from) \
	{ \
		u##bits value; \
		memcpy(&value, from, sizeof(value)); \
		return order##bits##_to_cpu(value); \
	} \
	static inline void put_unaligned_##order##bits(u##bits value, void *to) \
	{ \
		value = cpu_to_##order##bits(value); \
		memcpy(to, &value, sizeof(value)); \
	}
UW_UNALIGNED(16, le)
UW_UNALIGNED(32, le)
UW_UNALIGNED(64, le)
UW_UNALIGNED(16, be)
UW_UNALIGNED(32, be)
UW_UNALIGNED(64, be)

#endif
