/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See rcupdate.h. */
#ifndef UWORK_KERNEL_LINUX_RCUPDATE_WAIT_H
#define UWORK_KERNEL_LINUX_RCUPDATE_WAIT_H

#include <linux/rcupdate.h>

#endif
