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
#ifndef sizeof_field
#define sizeof_field(type, member) sizeof(((type *)0)->member)
#endif

#endif
