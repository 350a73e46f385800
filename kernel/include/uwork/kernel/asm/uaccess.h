/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/uaccess.h. */
#ifndef UWORK_KERNEL_ASM_UACCESS_H
#define UWORK_KERNEL_ASM_UACCESS_H

#include <linux/uaccess.h>

#endif
