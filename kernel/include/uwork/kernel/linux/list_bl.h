/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/list_bl.h>)
#include_next <linux/list_bl.h>
#else
#error "linux/list_bl.h: a data structure without ties to the kernel: add the program's own copy of this header to its include path; it is found first or behind these headers"
#endif
