/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See compiler.h. */
#ifndef UWORK_KERNEL_LINUX_TYPECHECK_H
#define UWORK_KERNEL_LINUX_TYPECHECK_H

#include <linux/compiler.h>

#endif
