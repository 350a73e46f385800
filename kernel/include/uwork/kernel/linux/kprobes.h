/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/kprobes.h>)
#include_next <linux/kprobes.h>
#else
#error "linux/kprobes.h: a process cannot put probes into the kernel: call the function directly, or use a debugger's probes"
#endif
