/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The length of an array. */
#ifndef UWORK_KERNEL_LINUX_ARRAY_SIZE_H
#define UWORK_KERNEL_LINUX_ARRAY_SIZE_H

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#endif

#endif
