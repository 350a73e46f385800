// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program with its own folder of kernel headers. Missing definitions are not taken from
 * elsewhere.
 */
#include <linux/kernel.h>
#include <linux/types.h>
#include <linux/list.h>
#include <linux/atomic.h>
#include <linux/bitops.h>
#ifdef BY_PATH
#include <uwork/kernel/linux/workqueue.h>
#include <uwork/kernel/linux/timer.h>
#else
#include <linux/workqueue.h>
#include <linux/timer.h>
#endif

/* Names that the program may still define itself. */
static int cpumask_weight, rcu_read_lock, kmalloc, cpu_relax, msecs_to_jiffies, complete, mutex_lock;

#define HAS_OWN_JIFFIES
#define EXPECTED_HZ (100 + cpumask_weight + rcu_read_lock + kmalloc + cpu_relax + msecs_to_jiffies + complete + mutex_lock)
#include "use.h"
