/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* File modes. */
#ifndef UWORK_KERNEL_LINUX_STAT_H
#define UWORK_KERNEL_LINUX_STAT_H

#include <sys/stat.h>

#define S_IRWXUGO 0777
#define S_IALLUGO 07777
#define S_IRUGO 0444
#define S_IWUGO 0222
#define S_IXUGO 0111

#endif
