/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/mm.h. */
#ifndef UWORK_KERNEL_ASM_PAGE_H
#define UWORK_KERNEL_ASM_PAGE_H

#include <linux/mm.h>

#endif
