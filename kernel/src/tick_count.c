/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The variable `jiffies` of programs. A file of its own: a program that is linked with the archive
 * gets it only if it reads the variable.
 */
volatile unsigned long uw_kernel_tick_count;
