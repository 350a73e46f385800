/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The C library's header, for programs that include it behind linux/timer.h: POSIX has another
 * timer_delete(), which the macro of linux/timer.h must not change. That header does not include
 * this one in modules, so that they may call a variable `clock` or `time`.
 */
#pragma GCC system_header
#pragma push_macro("timer_delete")
#undef timer_delete
#include_next <time.h>
#pragma pop_macro("timer_delete")
