/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The variable `jiffies` of programs. */
#ifndef UWORK_KERNEL_TICKS_H
#define UWORK_KERNEL_TICKS_H

/* Sets the variable to the present time, if the process reads it: called where time has passed. */
void uw_tick(void);

#endif
