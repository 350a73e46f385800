/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See linux/timex.h. */
#ifndef UWORK_KERNEL_ASM_TIMEX_H
#define UWORK_KERNEL_ASM_TIMEX_H

#include <linux/timex.h>

#endif
