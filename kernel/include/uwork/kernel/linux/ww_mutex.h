/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/ww_mutex.h>)
#include_next <linux/ww_mutex.h>
#else
#error "linux/ww_mutex.h: a lock that is not provided: take struct mutex in one order, or mutex_trylock() and back off"
#endif
