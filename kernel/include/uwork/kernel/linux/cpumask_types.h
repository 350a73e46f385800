/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See cpumask.h. */
#ifndef UWORK_KERNEL_LINUX_CPUMASK_TYPES_H
#define UWORK_KERNEL_LINUX_CPUMASK_TYPES_H

#include <linux/cpumask.h>

#endif
