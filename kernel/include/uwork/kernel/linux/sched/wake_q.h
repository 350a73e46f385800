/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/sched/wake_q.h>)
#include_next <linux/sched/wake_q.h>
#else
#error "linux/sched/wake_q.h: a queue that is not provided: call wake_up_process() after the lock is released"
#endif
