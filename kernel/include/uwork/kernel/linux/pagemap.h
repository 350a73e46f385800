/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/pagemap.h>)
#include_next <linux/pagemap.h>
#else
#error "linux/pagemap.h: a process has no page cache: alloc_page() and filp_open() are the ways to memory and files"
#endif
