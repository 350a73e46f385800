// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A child of fork() can take every per-CPU lock that another thread of the parent held. The forking
 * thread keeps its own.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/percpu.h>
#include <linux/pwlocks.h>
#include <linux/sched.h>

#include "check.h"

#define THREADS 3
#define FORKS 60

struct data {
	pw_lock_t lock;
	pw_trylock_t inner;
	unsigned long count, same;
};

static DEFINE_PER_CPU(struct data, data);
static DEFINE_PER_CPU(pw_lock_t, own);

static void count_here(void)
{
	struct data *here;

	pw_lock_local(&data.lock);
	here = this_cpu_ptr(&data);
	if (pw_trylock_local(&data.inner)) {
		here->count++;
		here->same++;
		pw_unlock_local(&data.inner);
	}
	pw_unlock_local(&data.lock);
}

static int storm(void *arg)
{
	int cpu;

	(void)arg;
	while (!kthread_should_stop()) {
		for (cpu = 0; cpu < 100; cpu++)
			count_here();
		for_each_online_cpu(cpu) {
			pw_lock(&data.lock, cpu);
			if (pw_trylock(&data.inner, cpu)) {
				per_cpu_ptr(&data, cpu)->count++;
				per_cpu_ptr(&data, cpu)->same++;
				pw_unlock(&data.inner, cpu);
			}
			pw_unlock(&data.lock, cpu);
		}
	}
	return 0;
}

static void nothing(struct work_struct *work)
{
	(void)work;
}

static void lock_everything(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		pw_lock(&data.lock, cpu);
		CHECK(pw_trylock(&data.inner, cpu));
		/* A thread that was lost at the fork may have left it in any state. */
		per_cpu_ptr(&data, cpu)->count = per_cpu_ptr(&data, cpu)->same = 0;
		pw_unlock(&data.inner, cpu);
		pw_unlock(&data.lock, cpu);
	}
	for (cpu = 0; cpu < 1000; cpu++)
		count_here();
}

static DECLARE_COMPLETION(locked);

static int in_child(void *arg)
{
	(void)arg;
	lock_everything();
	complete(&locked);
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

/* Also starts threads, which reuse the stacks of the lost threads. */
static void use_everything(void)
{
	struct task_struct *thread;
	struct pw_struct pw;

	lock_everything();
	thread = kthread_run(in_child, NULL, "child");
	wait_for_completion(&locked);
	kthread_stop(thread);
	INIT_PW(&pw, nothing, (int)cpumask_first(cpu_online_mask));
	CHECK(pw_queue_on(pw.cpu, system_percpu_wq, &pw));
	pw_flush(&pw);
}

/* A child, and a child of that child. */
static void fork_twice(void)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		use_everything();
		child = fork();
		if (child == 0) {
			use_everything();
			_exit(failed);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		_exit(failed);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void a_storm(void)
{
	struct task_struct *threads[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		threads[i] = kthread_run(storm, NULL, "storm/%d", i);
	for (i = 0; i < FORKS; i++)
		fork_twice();
	for (i = 0; i < THREADS; i++)
		kthread_stop(threads[i]);
	for_each_possible_cpu(i)
		CHECK(per_cpu_ptr(&data, i)->count == per_cpu_ptr(&data, i)->same);
}

static DECLARE_COMPLETION(is_held);
static DECLARE_COMPLETION(over);

static int hold(void *arg)
{
	(void)arg;
	pw_lock_local(&data.lock);
	complete(&is_held);
	wait_for_completion(&over);
	pw_unlock_local(&data.lock);
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

static void a_holder(void)
{
	struct task_struct *thread = kthread_run(hold, NULL, "holder");
	pid_t child;
	int status, cpu;

	wait_for_completion(&is_held);
	pw_lock_local(&own);
	cpu = smp_processor_id();
	child = fork();
	if (child == 0) {
		pw_lockdep_assert_held(&own);
		CHECK(!pw_trylock(&own, cpu));
		pw_unlock_local(&own);
		CHECK(pw_trylock(&own, cpu));
		pw_unlock(&own, cpu);
		use_everything();
		_exit(failed);
	}
	pw_unlock_local(&own);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	complete(&over);
	kthread_stop(thread);
}

/*
 * A lock of a CPU that does not exist is an error and not "busy": a caller that retries until it is
 * free would retry forever.
 */
static void a_missing_cpu_is_an_error(void)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		/* The test ignores its message. */
		close(STDERR_FILENO);
		pw_trylock(&own, (int)nr_cpu_ids + 1000);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* As many locks as are recorded for a child, and one more. */
#define NOTED 8
static DEFINE_PER_CPU(pw_lock_t, first_row);
static DEFINE_PER_CPU(struct { pw_lock_t lock[NOTED - 1]; }, rows);
static DECLARE_COMPLETION(many_held);
static DECLARE_COMPLETION(many_over);

static int hold_many(void *arg)
{
	int i;

	(void)arg;
	pw_lock(&first_row, 0);
	for (i = 0; i < NOTED - 1; i++)
		pw_lock(&rows.lock[i], 0);
	/*
	 * These are not recorded. Their unlock removes no record, because the first CPU's lock of
	 * the row is still held.
	 */
	for (i = 0; i < 3; i++) {
		pw_lock(&first_row, 1);
		pw_unlock(&first_row, 1);
		CHECK(!pw_trylock(&first_row, 0));
	}
	complete(&many_held);
	wait_for_completion(&many_over);
	for (i = 0; i < NOTED - 1; i++)
		pw_unlock(&rows.lock[i], 0);
	pw_unlock(&first_row, 0);
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

static void a_holder_of_many(void)
{
	struct task_struct *thread;
	int status, i;
	pid_t child;

	if (uw_kernel_nr_cpus() < 2)
		return;
	thread = kthread_run(hold_many, NULL, "many");
	wait_for_completion(&many_held);
	child = fork();
	if (child == 0) {
		CHECK(pw_trylock(&first_row, 0));
		for (i = 0; i < NOTED - 1; i++)
			CHECK(pw_trylock(&rows.lock[i], 0));
		_exit(failed);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	complete(&many_over);
	kthread_stop(thread);
}

static int __init pwforks_init(void)
{
	a_missing_cpu_is_an_error();
	a_holder_of_many();
	a_holder();
	a_storm();
	return checked();
}
module_init(pwforks_init)

MODULE_LICENSE("GPL");
