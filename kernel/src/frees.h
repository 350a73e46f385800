/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Objects that kfree_rcu() has not freed yet. */
#ifndef UWORK_KERNEL_FREES_H
#define UWORK_KERNEL_FREES_H

/*
 * Waits until the objects of all earlier kfree_rcu() are free. It does not wait where that could not end: in a callback
 * of call_rcu(), and after a shutdown, which has dropped them.
 */
void uw_kernel_wait_for_frees(void);

#endif
