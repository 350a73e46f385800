/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The CPU that is "this" one for a thread. The kernel keeps a thread on its CPU while it holds that
 * CPU's lock. Here the system may migrate the thread, which continues to use the data of the CPU
 * whose lock it holds.
 */
#ifndef UWORK_KERNEL_HELD_CPU_H
#define UWORK_KERNEL_HELD_CPU_H

#include <stdbool.h>

/* Whether uw_kernel_this_cpu() is fixed for the calling thread. */
bool uw_kernel_is_cpu_held(void);
/* Fixes it. Calls nest, always with the same CPU. */
void uw_kernel_hold_cpu(int cpu);
/* Ends one of these calls. */
void uw_kernel_let_cpu_go(void);

#endif
