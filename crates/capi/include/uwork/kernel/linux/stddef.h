/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the system has under this name, and struct members. */
#ifndef UWORK_KERNEL_LINUX_STDDEF_H
#define UWORK_KERNEL_LINUX_STDDEF_H

/* #include_next is no ISO C, which the compiler would say. */
#pragma GCC system_header
#include_next <linux/stddef.h>

#include <stddef.h>

#ifndef offsetofend
#define offsetofend(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#endif
#ifndef sizeof_field
#define sizeof_field(type, member) sizeof(((type *)0)->member)
#endif

#endif
