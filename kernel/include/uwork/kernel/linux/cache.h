/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See compiler.h. */
#ifndef UWORK_KERNEL_LINUX_CACHE_H
#define UWORK_KERNEL_LINUX_CACHE_H

#include <linux/compiler.h>

#ifndef L1_CACHE_BYTES
#define L1_CACHE_BYTES 64
#define SMP_CACHE_BYTES L1_CACHE_BYTES
#endif

#endif
