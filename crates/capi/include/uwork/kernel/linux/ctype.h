/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Kinds of characters. */
#ifndef UWORK_KERNEL_LINUX_CTYPE_H
#define UWORK_KERNEL_LINUX_CTYPE_H

#include <ctype.h>

#endif
