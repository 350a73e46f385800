/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Locks over a fork(): none is held by a thread that the child does not have. */
#ifndef UWORK_KERNEL_FORK_H
#define UWORK_KERNEL_FORK_H

#include <pthread.h>

enum uw_fork { UW_FORK_PREPARE, UW_FORK_PARENT, UW_FORK_CHILD };

void uw_fork_mutex(pthread_mutex_t *mutex, enum uw_fork at);

/* One for each file that has locks. Locks are leaves: who holds one takes no other, but that of the debug mode. */
void uw_task_fork(enum uw_fork at);
void uw_percpu_fork(enum uw_fork at);
void uw_printk_fork(enum uw_fork at);
/* Of Rust: the handles of queues that were destroyed; the items of the debug mode. */
void uw_rested_fork(unsigned int at);
void uw_debug_fork(unsigned int at);

/* Has all that called at each fork; at the latest when this returns. */
void uw_watch_forks(void);

#endif
