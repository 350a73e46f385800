// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A child of fork() can use everything, whatever the parent's other threads were doing, and acts on none of them. Also
 * rcu_barrier().
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/async.h>
#include <linux/kthread.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "check.h"

static void nothing(struct work_struct *work)
{
	(void)work;
}

static int print(void *data)
{
	(void)data;
	while (!kthread_should_stop())
		pr_info("a line\n");
	return 0;
}

static int allocate(void *data)
{
	(void)data;
	while (!kthread_should_stop())
		free_percpu(alloc_percpu(int));
	return 0;
}

static int make_threads(void *data)
{
	(void)data;
	while (!kthread_should_stop())
		kthread_stop(kthread_run(allocate, NULL, "short"));
	return 0;
}

/* The wait queues that are found by an address are shared by all variables. */
static unsigned long words[64];

static int wake_addresses(void *data)
{
	(void)data;
	while (!kthread_should_stop()) {
		size_t i;

		for (i = 0; i < ARRAY_SIZE(words); i++)
			wake_up_var(&words[i]);
	}
	return 0;
}

static void use_addresses(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(words); i++) {
		CHECK(wait_var_event_timeout(&words[i], words[i] == 1, 1) == 0);
		clear_and_wake_up_bit(0, &words[i]);
		CHECK(wait_on_bit(&words[i], 0, TASK_UNINTERRUPTIBLE) == 0);
	}
}

/* In the debug mode, each of these calls takes the lock of the registry. */
static int use_items(void *data)
{
	(void)data;
	while (!kthread_should_stop()) {
		struct work_struct *work = kmalloc(sizeof(*work), GFP_KERNEL);

		INIT_WORK(work, nothing);
		schedule_work(work);
		flush_work(work);
		kfree(work);
	}
	return 0;
}

static void use_everything(void)
{
	struct work_struct work;
	int *ptr, result;

	/* The parent has already reported the failures of other children. */
	failed = 0;
	pr_info("a line of the child\n");
	CHECK(current->pid == (pid_t)syscall(SYS_gettid) && current->tgid == getpid());
	INIT_WORK(&work, nothing);
	schedule_work(&work);
	flush_work(&work);
	ptr = alloc_percpu(int);
	CHECK(ptr);
	free_percpu(ptr);
	use_addresses();
	result = kthread_stop(kthread_run(allocate, NULL, "child"));
	/* It may have been stopped before it started. */
	CHECK(result == 0 || result == -EINTR);
	synchronize_rcu();
	rcu_barrier();
	_exit(failed);
}

static void wait_for_child(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child || status != 0) {
		pr_err("child %d ended with status %#x\n", child, status);
		failed++;
	}
}

static void forks(void)
{
	struct task_struct *threads[5];
	size_t i;
	int out = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY);

	dup2(null, STDOUT_FILENO);
	threads[0] = kthread_run(print, NULL, "print");
	threads[1] = kthread_run(allocate, NULL, "allocate");
	threads[2] = kthread_run(make_threads, NULL, "threads");
	threads[3] = kthread_run(use_items, NULL, "items");
	threads[4] = kthread_run(wake_addresses, NULL, "addresses");
	for (i = 0; i < 40; i++) {
		pid_t child = fork();

		if (child == 0)
			use_everything();
		wait_for_child(child);
	}
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		kthread_stop(threads[i]);
	dup2(out, STDOUT_FILENO);
	close(out);
	close(null);
}

struct counted {
	struct rcu_head head;
	atomic_t *count;
};

static void count(struct rcu_head *head)
{
	struct counted *counted = container_of(head, struct counted, head);

	atomic_inc(counted->count);
}

/* The child does not wait for a callback that was waiting in the parent at the fork. */
static void fork_with_callback(void)
{
	atomic_t ran = ATOMIC_INIT(0);
	struct counted one = { .count = &ran };
	pid_t child;

	rcu_read_lock();
	call_rcu(&one.head, count);
	child = fork();
	if (child == 0) {
		rcu_read_unlock();
		use_everything();
	}
	wait_for_child(child);
	rcu_read_unlock();
	rcu_barrier();
	CHECK(atomic_read(&ran) == 1);
}

static DECLARE_COMPLETION(reads);

static int read_until_stopped(void *data)
{
	(void)data;
	rcu_read_lock();
	complete(&reads);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ);
	rcu_read_unlock();
	return 0;
}

/* A grace period that is polled, which a reader of the parent delays: the child has no such reader. */
static void fork_with_polled(void)
{
	struct task_struct *reader = kthread_run(read_until_stopped, NULL, "reader");
	unsigned long state;
	pid_t child;

	wait_for_completion(&reads);
	state = start_poll_synchronize_rcu();
	child = fork();
	if (child == 0)
		_exit(!poll_state_synchronize_rcu(state));
	wait_for_child(child);
	CHECK(!poll_state_synchronize_rcu(state));
	kthread_stop(reader);
	while (!poll_state_synchronize_rcu(state))
		schedule_timeout_interruptible(1);
}

/* The thread that forks is the reader: the child is one, too, until it leaves. */
static void fork_as_reader_with_polled(void)
{
	unsigned long state;
	pid_t child;

	rcu_read_lock();
	state = start_poll_synchronize_rcu();
	child = fork();
	if (child == 0) {
		failed = 0;
		CHECK(!poll_state_synchronize_rcu(state));
		rcu_read_unlock();
		while (!poll_state_synchronize_rcu(state))
			schedule_timeout_interruptible(1);
		_exit(failed);
	}
	wait_for_child(child);
	CHECK(!poll_state_synchronize_rcu(state));
	rcu_read_unlock();
	while (!poll_state_synchronize_rcu(state))
		schedule_timeout_interruptible(1);
}

DEFINE_STATIC_SRCU(domain);

/* The parent has asked for a grace period, which has not begun at the fork. */
static void fork_with_polled_domain(void)
{
	struct uw_queue *queue = uw_system_queue(UW_SYSTEM_DFL_LONG);
	unsigned long state;
	pid_t child;

	CHECK(uw_queue_pause(queue) == 0);
	state = start_poll_synchronize_srcu(&domain);
	child = fork();
	if (child == 0) {
		uw_queue_resume(queue);
		while (!poll_state_synchronize_srcu(&domain, state))
			schedule_timeout_interruptible(1);
		_exit(0);
	}
	wait_for_child(child);
	CHECK(!poll_state_synchronize_srcu(&domain, state));
	CHECK(uw_queue_resume(queue) == 0);
	while (!poll_state_synchronize_srcu(&domain, state))
		schedule_timeout_interruptible(1);
}

static void fork_here(void *data, async_cookie_t cookie)
{
	pid_t *child = data;

	(void)cookie;
	*child = fork();
	if (*child == 0) {
		failed = 0;
		/* The call is the parent's. */
		async_synchronize_full();
		CHECK(current_is_async());
		if (failed)
			_exit(failed);
	}
}

/* The child's copy of the call returns from its function, which ends the child. */
static void fork_in_async_call(void)
{
	ASYNC_DOMAIN_EXCLUSIVE(domain);
	pid_t child;

	async_schedule(fork_here, &child);
	async_synchronize_full();
	wait_for_child(child);
	async_schedule_domain(fork_here, &child, &domain);
	async_synchronize_full_domain(&domain);
	wait_for_child(child);
}

static int wait_for_stop(void *data)
{
	(void)data;
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ);
	return 5;
}

static int return_at_once(void *data)
{
	(void)data;
	return 7;
}

/* What the system has for a thread. */
struct attributes {
	int nice;
	int policy;
	cpu_set_t cpus;
};

static struct attributes attributes_of(const struct task_struct *task)
{
	struct attributes found = { .nice = getpriority(PRIO_PROCESS, (id_t)task->pid) };

	found.policy = sched_getscheduler(task->pid);
	CHECK(sched_getaffinity(task->pid, sizeof(found.cpus), &found.cpus) == 0);
	return found;
}

static struct task_struct *sleeper, *ended;
static struct kthread_worker *worker;

static pid_t ran_in;

static void note_run(struct kthread_work *work)
{
	(void)work;
	WRITE_ONCE(ran_in, getpid());
}

/* What a module does with its threads, until it has removed them. */
static void use_threads_of_parent(void)
{
	static const struct sched_param normal;
	struct kthread_work work;

	failed = 0;
	set_user_nice(sleeper, MAX_NICE);
	kthread_bind(sleeper, cpumask_first(cpu_online_mask));
	CHECK(sched_setscheduler(sleeper, SCHED_BATCH, &normal) == 0);
	CHECK(task_nice(sleeper) == 0);
	wake_up_process(sleeper);
	CHECK(kthread_park(sleeper) == -ENOSYS);
	kthread_unpark(sleeper);
	CHECK(kthread_stop_put(sleeper) == -ECANCELED);
	/* It had ended at the fork. */
	CHECK(kthread_park(ended) == -ENOSYS && kthread_stop(ended) == 7);
	kthread_init_work(&work, note_run);
	CHECK(kthread_queue_work(worker, &work));
	kthread_flush_work(&work);
	CHECK(ran_in == getpid());
	kthread_destroy_worker(worker);
	_exit(failed);
}

static void fork_with_threads(void)
{
	struct attributes before[2], after[2];
	pid_t child;
	int i;

	sleeper = kthread_run(wait_for_stop, NULL, "sleeper");
	get_task_struct(sleeper);
	ended = kthread_run(return_at_once, NULL, "ended");
	while (kthread_park(ended) != -ENOSYS) {
		kthread_unpark(ended);
		schedule_timeout_uninterruptible(1);
	}
	worker = kthread_run_worker(0, "worker");
	CHECK(!IS_ERR(sleeper) && !IS_ERR(ended) && !IS_ERR(worker));
	/* The child must not restore the worker's original niceness. */
	set_user_nice(worker->task, MAX_NICE);
	before[0] = attributes_of(sleeper);
	before[1] = attributes_of(worker->task);
	child = fork();
	if (child == 0)
		use_threads_of_parent();
	wait_for_child(child);
	after[0] = attributes_of(sleeper);
	after[1] = attributes_of(worker->task);
	for (i = 0; i < 2; i++) {
		CHECK(after[i].nice == before[i].nice && after[i].policy == before[i].policy);
		CHECK(CPU_EQUAL(&after[i].cpus, &before[i].cpus));
	}
	CHECK(kthread_stop_put(sleeper) == 5 && kthread_stop(ended) == 7);
	kthread_destroy_worker(worker);
}

static DECLARE_COMPLETION(began);

static int fork_before_parking(void *data)
{
	pid_t *child = data;

	complete(&began);
	while (!kthread_should_park())
		schedule_timeout_interruptible(1);
	*child = fork();
	if (*child == 0) {
		failed = 0;
		CHECK(!kthread_should_park());
		kthread_parkme();
		_exit(failed);
	}
	kthread_parkme();
	return 0;
}

/* The parent asks a kthread to park, and unparks it. The child, which is the copy of that thread, has no such thread. */
static void fork_in_kthread(void)
{
	pid_t child;
	struct task_struct *task = kthread_run(fork_before_parking, &child, "parks");

	CHECK(!IS_ERR(task));
	wait_for_completion(&began);
	CHECK(kthread_park(task) == 0);
	CHECK(kthread_stop(task) == 0);
	wait_for_child(child);
}

static int stop_repeating;

/* Each callback queues another one behind it. */
static void repeat(struct rcu_head *head)
{
	if (!READ_ONCE(stop_repeating))
		call_rcu(head, repeat);
}

/* rcu_barrier() waits for all earlier callbacks, and for none of the later ones. */
static void barriers(void)
{
	static struct counted counted[100];
	static struct rcu_head repeated;
	atomic_t ran = ATOMIC_INIT(0);
	int i;

	call_rcu(&repeated, repeat);
	for (i = 0; i < 100; i++) {
		counted[i].count = &ran;
		call_rcu(&counted[i].head, count);
	}
	rcu_barrier();
	CHECK(atomic_read(&ran) == 100);
	WRITE_ONCE(stop_repeating, 1);
	rcu_barrier();
	rcu_barrier();
}

static int __init forks_init(void)
{
	if (CAN_FORK_WITH_THREADS) {
		forks();
		fork_with_callback();
		fork_with_polled();
		fork_as_reader_with_polled();
		fork_with_polled_domain();
		fork_in_async_call();
		fork_with_threads();
		fork_in_kthread();
	}
	barriers();
	return checked();
}
module_init(forks_init)

MODULE_LICENSE("GPL");
