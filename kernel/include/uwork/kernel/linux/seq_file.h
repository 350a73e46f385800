/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/seq_file.h>)
#include_next <linux/seq_file.h>
#else
#error "linux/seq_file.h: a process has no such file system: module parameters and pr_info() are the ways in and out"
#endif
