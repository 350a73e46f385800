// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What runs later: asynchronous calls in the order of their cookies, callbacks of sleepable domains,
 * waiters of a mempool, tasklets that were disabled, signals that end sleeps; absurd delays; and in a
 * forked child.
 */
#include <stdlib.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/async.h>
#include <linux/interrupt.h>
#include <linux/kthread.h>
#include <linux/mempool.h>
#include <linux/signal.h>
#include <linux/srcu.h>

#include "check.h"

static DECLARE_COMPLETION(go);
static atomic_t ran = ATOMIC_INIT(0);

static void wait_to_go(void *data, async_cookie_t cookie)
{
	(void)data;
	(void)cookie;
	CHECK(current_is_async());
	wait_for_completion(&go);
	atomic_inc(&ran);
}

static void after_the_first(void *data, async_cookie_t cookie)
{
	async_synchronize_cookie(cookie);
	*(int *)data = atomic_read(&ran);
}

static void never_runs(struct work_struct *work)
{
	CHECK(!work);
}

/* The longest delay never passes. A negative one is refused with a warning. */
static void absurd_delays(void)
{
	static DECLARE_DELAYED_WORK(work, never_runs);
	static struct timer_list timer;

	CHECK(schedule_delayed_work(&work, LONG_MAX) && delayed_work_pending(&work) && cancel_delayed_work(&work));
	CHECK(schedule_delayed_work(&work, MAX_JIFFY_OFFSET) && cancel_delayed_work(&work));
	/* In the debug mode these calls end the process. */
	if (!getenv("UWORK_DEBUG")) {
		CHECK(!schedule_delayed_work(&work, (unsigned long)-HZ) && !delayed_work_pending(&work));
		CHECK(!mod_delayed_work(system_percpu_wq, &work, ULONG_MAX) && !delayed_work_pending(&work));
	}
	timer_setup(&timer, NULL, 0);
	CHECK(!mod_timer(&timer, jiffies + MAX_JIFFY_OFFSET) && timer_pending(&timer));
	CHECK(timer_delete(&timer));
}

/* The names of the C library's functions stay usable beside the kernel's. */
static void posix_timer(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_NONE };
	timer_t timer;

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	CHECK(timer_delete(timer) == 0);
}

/* No signal has this number, so that none is allowed. */
static void no_signal(void)
{
	allow_signal(0);
	allow_signal(65);
	CHECK(current->uw_allowed_signals == 0);
	CHECK(send_sig(64, current, 0) == 0 && !signal_pending(current));
	disallow_signal(0);
}

struct freed {
	struct rcu_head head;
	atomic_t *count;
};

static void note_freed(struct rcu_head *head)
{
	atomic_inc(container_of(head, struct freed, head)->count);
}

static void srcu_calls(void)
{
	static struct srcu_struct domain;
	atomic_t count = ATOMIC_INIT(0);
	struct freed first = { .count = &count }, second = { .count = &count };
	int index;

	CHECK(init_srcu_struct(&domain) == 0);
	index = srcu_read_lock(&domain);
	call_srcu(&domain, &first.head, note_freed);
	call_srcu(&domain, &second.head, note_freed);
	/* The reader is still inside. */
	CHECK(atomic_read(&count) == 0);
	srcu_read_unlock(&domain, index);
	srcu_barrier(&domain);
	CHECK(atomic_read(&count) == 2);
	cleanup_srcu_struct(&domain);
}

/* In the child the parent's call never ends, so no wait is for it; new calls run. */
static int child(void)
{
	unsigned long begin = jiffies;
	int seen = -1;

	async_synchronize_full();
	complete_all(&go);
	async_schedule(wait_to_go, NULL);
	async_schedule(after_the_first, &seen);
	async_synchronize_full();
	CHECK(seen == 1 && atomic_read(&ran) == 1);
	srcu_calls();
	while (time_before(jiffies, begin + 3))
		cpu_relax();
	return failed;
}

static void async_calls(void)
{
	int seen = -1, status;
	pid_t pid;

	async_schedule(wait_to_go, NULL);
	pid = CAN_FORK_WITH_THREADS ? fork() : -1;
	CHECK(pid >= 0 || !CAN_FORK_WITH_THREADS);
	if (pid == 0)
		_exit(child());
	async_schedule(after_the_first, &seen);
	CHECK(seen == -1);
	complete_all(&go);
	async_synchronize_full();
	CHECK(seen == 1 && !current_is_async());
	if (CAN_FORK_WITH_THREADS)
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *no_more(gfp_t gfp, void *data)
{
	atomic_t *left = data;

	(void)gfp;
	return atomic_dec_if_positive(left) >= 0 ? malloc(16) : NULL;
}

static void free_element(void *element, void *data)
{
	(void)data;
	free(element);
}

static int free_later(void *data)
{
	void **arguments = data;

	mempool_free(arguments[0], arguments[1]);
	return 0;
}

static void mempools(void)
{
	atomic_t left = ATOMIC_INIT(2);
	mempool_t *pool = mempool_create(2, no_more, free_element, &left);
	void *first, *second, *arguments[2];
	struct task_struct *task;

	CHECK(pool && mempool_is_saturated(pool));
	first = mempool_alloc(pool, GFP_KERNEL);
	second = mempool_alloc_preallocated(pool);
	CHECK(first && second && !mempool_alloc(pool, GFP_ATOMIC) && !mempool_alloc_preallocated(pool));
	arguments[0] = first;
	arguments[1] = pool;
	task = kthread_run(free_later, arguments, "free");
	CHECK(!IS_ERR(task));
	/* Waits for the other thread, which gives this element back. */
	CHECK(mempool_alloc(pool, GFP_KERNEL) == first);
	mempool_free(first, pool);
	mempool_free(second, pool);
	kthread_stop(task);
	/* No more than two elements can be allocated. */
	CHECK(mempool_resize(pool, 3) == -ENOMEM && mempool_resize(pool, 1) == 0);
	mempool_destroy(pool);
	CHECK(!mempool_create(1, no_more, free_element, &left));
}

static atomic_t tasklets_run = ATOMIC_INIT(0);

static void count_tasklet(struct tasklet_struct *tasklet)
{
	(void)tasklet;
	atomic_inc(&tasklets_run);
}

static void tasklets(void)
{
	DECLARE_TASKLET_DISABLED(tasklet, count_tasklet);

	tasklet_schedule(&tasklet);
	tasklet_unlock_wait(&tasklet);
	CHECK(atomic_read(&tasklets_run) == 0);
	tasklet_enable(&tasklet);
	tasklet_kill(&tasklet);
	CHECK(atomic_read(&tasklets_run) == 1);
}

static DECLARE_WAIT_QUEUE_HEAD(never);
static DECLARE_COMPLETION(ready);

static int sleep_until_signalled(void *data)
{
	(void)data;
	allow_signal(SIGUSR1);
	complete(&ready);
	CHECK(wait_event_interruptible(never, false) == -ERESTARTSYS);
	CHECK(signal_pending(current) && !fatal_signal_pending(current));
	CHECK(wait_event_interruptible_timeout(never, false, 86400 * HZ) == -ERESTARTSYS);
	CHECK(schedule_timeout_interruptible(86400 * HZ) > 0);
	/* Not ended by it. */
	CHECK(wait_event_timeout(never, false, 1) == 0);
	CHECK(kernel_dequeue_signal() == SIGUSR1 && kernel_dequeue_signal() == 0 && !signal_pending(current));
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 7;
}

static void signals(void)
{
	struct task_struct *task = kthread_run(sleep_until_signalled, NULL, "signalled");

	CHECK(!IS_ERR(task));
	wait_for_completion(&ready);
	CHECK(send_sig(SIGUSR2, task, 0) == 0 && !signal_pending(task));
	CHECK(send_sig(1000, task, 0) == -EINVAL);
	CHECK(send_sig(SIGUSR1, task, 0) == 0);
	CHECK(kthread_stop(task) == 7);
}

static int __init later_init(void)
{
	async_calls();
	absurd_delays();
	posix_timer();
	no_signal();
	srcu_calls();
	mempools();
	tasklets();
	signals();
	return checked();
}

module_init(later_init)
MODULE_LICENSE("Dual MIT/GPL");
