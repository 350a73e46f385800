/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Shared by the contract tests. They test the promises of linux/workqueue.h and not the
 * implementation: they use the kernel's interface only, and run on the kernel or on any library
 * with the same headers.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

static int rounds = 200;
module_param(rounds, int, 0444);
MODULE_PARM_DESC(rounds, "how often each race is tried");

static atomic_t failures = ATOMIC_INIT(0);

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			atomic_inc(&failures); \
		} \
	} while (0)

#define CONTRACT_THREADS 4

struct contract_threads {
	struct task_struct *task[CONTRACT_THREADS];
};

static DECLARE_COMPLETION(contract_ended);

/* Starts threads that call `function` with `data`. */
static inline void contract_start(struct contract_threads *threads, int (*function)(void *), void *data)
{
	int i;

	for (i = 0; i < CONTRACT_THREADS; i++) {
		threads->task[i] = kthread_run(function, data, "contract/%d", i);
		BUG_ON(IS_ERR(threads->task[i]));
	}
}

/* The end of each thread: it waits until kthread_stop() ends it. */
static inline int contract_end(void)
{
	complete(&contract_ended);
	set_current_state(TASK_INTERRUPTIBLE);
	while (!kthread_should_stop()) {
		schedule();
		set_current_state(TASK_INTERRUPTIBLE);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

static inline void contract_stop(struct contract_threads *threads)
{
	int i;

	/* A thread that is stopped before it has started never runs its function. */
	for (i = 0; i < CONTRACT_THREADS; i++)
		wait_for_completion(&contract_ended);
	for (i = 0; i < CONTRACT_THREADS; i++)
		kthread_stop(threads->task[i]);
}

/* A cheap random number generator, with a state for each thread. */
static inline unsigned int contract_random(unsigned int *state)
{
	*state = *state * 1103515245u + 12345u;
	return *state >> 16;
}

#define CONTRACT(function) \
	static int __init contract_init(void) \
	{ \
		function(); \
		if (atomic_read(&failures)) \
			return -EIO; \
		pr_info("ok\n"); \
		return 0; \
	} \
	module_init(contract_init) \
	MODULE_DESCRIPTION("A contract of linux/workqueue.h"); \
	MODULE_LICENSE("Dual MIT/GPL")

#endif
