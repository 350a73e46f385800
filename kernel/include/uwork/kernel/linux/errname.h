/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The names of errors. */
#ifndef UWORK_KERNEL_LINUX_ERRNAME_H
#define UWORK_KERNEL_LINUX_ERRNAME_H

#include <linux/errno.h>
#include "../uw_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif
/* "EIO" for EIO, "-EIO" for -EIO; NULL for a number without a name. */
const char *errname(int err) UW_KERNEL_NAME(errname);
#ifdef __cplusplus
}
#endif

#endif
