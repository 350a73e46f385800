/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/cred.h>)
#include_next <linux/cred.h>
#else
#error "linux/cred.h: a process has the credentials of its user: getuid() and its relatives of the C library read them"
#endif
