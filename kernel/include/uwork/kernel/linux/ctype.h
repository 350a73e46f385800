/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Character classes. */
#ifndef UWORK_KERNEL_LINUX_CTYPE_H
#define UWORK_KERNEL_LINUX_CTYPE_H

#include <ctype.h>

#endif
