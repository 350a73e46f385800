/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Includes the system's header of the same name; adds helpers for struct members. */
#ifndef UWORK_KERNEL_LINUX_STDDEF_H
#define UWORK_KERNEL_LINUX_STDDEF_H

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <linux/stddef.h>

#include <stddef.h>

#ifndef offsetofend
#define offsetofend(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#endif
/* An array of no fixed length in a union, or as the only member. */
#ifndef DECLARE_FLEX_ARRAY
#define DECLARE_FLEX_ARRAY(type, name) \
	__extension__ struct { \
		__extension__ struct { \
		} uw_empty_##name; \
		type name[]; \
	}
#endif
/* Members that can also be used as one member, for example for memset(). */
#ifndef struct_group
#define struct_group(name, ...) struct_group_attr(name, , __VA_ARGS__)
#define struct_group_attr(name, attributes, ...) \
	__extension__ union { \
		__extension__ struct { \
			__VA_ARGS__ \
		} attributes; \
		struct { \
			__VA_ARGS__ \
		} attributes name; \
	}
#define struct_group_tagged(tag, name, ...) \
	__extension__ union { \
		__extension__ struct { \
			__VA_ARGS__ \
		}; \
		struct tag { \
			__VA_ARGS__ \
		} name; \
	}
#endif
#ifndef sizeof_field
#define sizeof_field(type, member) sizeof(((type *)0)->member)
#endif

#endif
