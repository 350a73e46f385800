/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See wait.h. */
#ifndef UWORK_KERNEL_LINUX_WAIT_BIT_H
#define UWORK_KERNEL_LINUX_WAIT_BIT_H

#include <linux/wait.h>

#endif
