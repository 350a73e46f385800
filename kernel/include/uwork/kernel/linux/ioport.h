/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/ioport.h>)
#include_next <linux/ioport.h>
#else
#error "linux/ioport.h: a process has no devices: keep this part out of the program"
#endif
