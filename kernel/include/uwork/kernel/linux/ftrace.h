/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/ftrace.h>)
#include_next <linux/ftrace.h>
#else
#error "linux/ftrace.h: a process has no tracers of the kernel: pr_debug() and trace_printk() write messages, and uwork's trace records items"
#endif
