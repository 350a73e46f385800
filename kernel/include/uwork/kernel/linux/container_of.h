/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* From a member to the structure that contains it. */
#ifndef UWORK_KERNEL_LINUX_CONTAINER_OF_H
#define UWORK_KERNEL_LINUX_CONTAINER_OF_H

#include <linux/types.h>

#ifndef container_of
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#endif
#ifndef container_of_const
#define container_of_const(ptr, type, member) container_of(ptr, type, member)
#endif

#endif
