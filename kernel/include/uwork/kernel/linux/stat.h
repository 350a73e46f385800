/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* File modes. */
#ifndef UWORK_KERNEL_LINUX_STAT_H
#define UWORK_KERNEL_LINUX_STAT_H

/* <sys/stat.h> declares functions as well, such as stat(). */
#ifndef S_IRUSR
#define S_IRUSR 00400
#define S_IWUSR 00200
#define S_IXUSR 00100
#define S_IRWXU 00700
#endif
#ifndef S_IRGRP
#define S_IRGRP 00040
#define S_IWGRP 00020
#define S_IXGRP 00010
#define S_IRWXG 00070
#define S_IROTH 00004
#define S_IWOTH 00002
#define S_IXOTH 00001
#define S_IRWXO 00007
#endif
#ifndef S_ISUID
#define S_ISUID 04000
#define S_ISGID 02000
#endif
#ifndef S_ISVTX
#define S_ISVTX 01000
#endif
#ifndef S_IFMT
#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFLNK 0120000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFDIR 0040000
#define S_IFCHR 0020000
#define S_IFIFO 0010000
#endif

#define S_IRWXUGO 0777
#define S_IALLUGO 07777
#define S_IRUGO 0444
#define S_IWUGO 0222
#define S_IXUGO 0111

#endif
