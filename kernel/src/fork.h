/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Locks over a fork(): the child inherits none that is held by a thread of the parent. */
#ifndef UWORK_KERNEL_FORK_H
#define UWORK_KERNEL_FORK_H

#include <pthread.h>

enum uw_fork { UW_FORK_PREPARE, UW_FORK_PARENT, UW_FORK_CHILD };

void uw_fork_mutex(pthread_mutex_t *mutex, enum uw_fork at);

/*
 * One function for each file that has locks. These locks are leaves: a holder takes no other lock,
 * except for the one of the debug mode.
 */
void uw_async_fork(enum uw_fork at);
void uw_ticks_fork(enum uw_fork at);
void uw_task_fork(enum uw_fork at);
void uw_percpu_fork(enum uw_fork at);
void uw_printk_fork(enum uw_fork at);
void uw_slab_fork(enum uw_fork at);
/* These two have no lock to take: the child begins anew. */
void uw_rcu_fork(enum uw_fork at);
void uw_wait_bit_fork(enum uw_fork at);
/* Defined in Rust: the quarantine of handles, and the debug mode's registry. */
void uw_quarantine_fork(unsigned int at);
void uw_debug_fork(unsigned int at);

/* Registers the functions above for every fork, at the latest when this returns. */
__attribute__((constructor(101))) void uw_watch_forks(void);

#endif
