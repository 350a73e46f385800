/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/namei.h>)
#include_next <linux/namei.h>
#else
#error "linux/namei.h: a process has no inodes: filp_open() opens files"
#endif
