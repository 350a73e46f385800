/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Signals: the definitions of the C library. The system's header of this name has other definitions of the
 * same types, which conflict with them.
 */
#ifndef UWORK_KERNEL_LINUX_SIGNAL_H
#define UWORK_KERNEL_LINUX_SIGNAL_H

#include <signal.h>

#include <linux/sched.h>

#endif
