/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The system's error numbers, and those that only the kernel has. `errno` is the C library's <errno.h>'s. */
#ifndef UWORK_KERNEL_LINUX_ERRNO_H
#define UWORK_KERNEL_LINUX_ERRNO_H

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <linux/errno.h>

#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ENOIOCTLCMD 515
#define EPROBE_DEFER 517
#define EOPENSTALE 518
#define ENOPARAM 519
#define EBADHANDLE 521
#define ENOTSYNC 522
#define EBADCOOKIE 523
#define ENOTSUPP 524
#define ETOOSMALL 525
#define ESERVERFAULT 526
#define EBADTYPE 527
#define EJUKEBOX 528
#define EIOCBQUEUED 529

#endif
