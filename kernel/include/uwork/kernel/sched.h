/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The C library's header. Its sched_setscheduler() is another one than the kernel's: the name is
 * the C library's until the program includes linux/sched.h.
 */
#pragma GCC system_header
#ifdef __cplusplus
#include_next <sched.h>
#else
struct sched_param;
#pragma push_macro("sched_setscheduler")
#undef sched_setscheduler
#define sched_setscheduler uw_kernel_posix_sched_setscheduler
int uw_kernel_posix_sched_setscheduler(int pid, int policy, const struct sched_param *param) __asm__("sched_setscheduler");
#include_next <sched.h>
#ifdef UWORK_KERNEL_LINUX_SCHED_H
#pragma pop_macro("sched_setscheduler")
#endif
#endif
