/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Objects that kfree_rcu() has not freed yet. */
#ifndef UWORK_KERNEL_FREES_H
#define UWORK_KERNEL_FREES_H

#include <linux/rcupdate.h>

/* Whether such objects exist. */
bool uw_kernel_has_frees(void);

/*
 * Waits for a grace period, and until the callbacks of all earlier call_rcu() and kfree_rcu() have run. False: it could
 * not wait, because the caller is a thread hook, a reader, a callback or an item of a BH queue, or the library is shut
 * down.
 */
bool uw_kernel_wait_for_callbacks(void);

/* As call_rcu(). False: the callback never runs, because the library is shut down. */
bool uw_kernel_try_call_rcu(struct rcu_head *head, rcu_callback_t func);

#endif
