/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See fs.h. */
#ifndef UWORK_KERNEL_LINUX_FILE_H
#define UWORK_KERNEL_LINUX_FILE_H

#include <linux/fs.h>

#endif
