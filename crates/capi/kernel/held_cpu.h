/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which CPU is "this" one for a thread. The kernel keeps a thread on its CPU while it has that CPU's lock; here the
 * thread may be moved, and goes on to use the data of the CPU whose lock it has.
 */
#ifndef UWORK_KERNEL_HELD_CPU_H
#define UWORK_KERNEL_HELD_CPU_H

#include <stdbool.h>

/* Whether uw_kernel_this_cpu() is settled for the calling thread. */
bool uw_kernel_is_cpu_held(void);
/* Settles it, or does so once more with the same CPU. */
void uw_kernel_hold_cpu(int cpu);
/* Takes one of these back. */
void uw_kernel_let_cpu_go(void);

#endif
