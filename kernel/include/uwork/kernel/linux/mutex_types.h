/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See mutex.h. */
#ifndef UWORK_KERNEL_LINUX_MUTEX_TYPES_H
#define UWORK_KERNEL_LINUX_MUTEX_TYPES_H

#include <linux/mutex.h>

#endif
