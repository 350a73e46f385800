/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The C library's header. POSIX has another timer_delete(), which programs may call until they
 * include linux/timer.h; then the type of the argument selects one of the two. linux/timer.h does
 * not include this header in modules, so that they may call a variable `clock` or `time`.
 */
#pragma GCC system_header
#ifdef __cplusplus
#include_next <time.h>
#else
#define UW_KERNEL_HAS_WRAPPED_TIME
int uw_kernel_posix_timer_delete(void *timerid) __asm__("timer_delete");
#pragma push_macro("timer_delete")
#undef timer_delete
#define timer_delete uw_kernel_posix_timer_delete
#include_next <time.h>
#ifdef UW_KERNEL_TIMER_DELETE
#pragma pop_macro("timer_delete")
#endif
#endif
