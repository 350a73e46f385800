/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Not among these headers. The program's own is taken, also if its folder comes behind this one. */
#pragma GCC system_header
#if __has_include_next(<linux/stop_machine.h>)
#include_next <linux/stop_machine.h>
#else
#error "linux/stop_machine.h: a process cannot stop the other CPUs: on_each_cpu() calls a function on each, and a percpu_rw_semaphore or SRCU excludes readers"
#endif
