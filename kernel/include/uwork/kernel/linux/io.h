/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/io.h>)
#include_next <linux/io.h>
#else
#error "linux/io.h: a process has no devices: read and write memory with READ_ONCE() and WRITE_ONCE()"
#endif
