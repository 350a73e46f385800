/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See percpu.h. */
#ifndef UWORK_KERNEL_LINUX_PERCPU_DEFS_H
#define UWORK_KERNEL_LINUX_PERCPU_DEFS_H

#include <linux/percpu.h>

#endif
