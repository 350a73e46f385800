// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A child of fork() can create and destroy queues, whatever the parent's other threads were doing.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

#define THREADS 3
#define FORKS 60
#define INHERITED 100

static atomic_bool over;
static atomic_int runs;

static void count(struct uw_work *work)
{
	(void)work;
	atomic_fetch_add(&runs, 1);
}

static void make_and_destroy(const char *name)
{
	struct uw_work work = UW_WORK_INIT(count);
	struct uw_queue *queue = uw_queue_create(name, UW_UNBOUND, 0);

	CHECK(queue);
	CHECK(uw_queue_work(queue, &work) == 1);
	CHECK(uw_queue_destroy(queue) == 0);
}

static void *keep_at_it(void *name)
{
	while (!atomic_load(&over))
		make_and_destroy(name);
	return NULL;
}

static void child(void)
{
	atomic_store(&runs, 0);
	make_and_destroy("of-the-child");
	_exit(atomic_load(&runs) == 1 ? 0 : 2);
}

/* The sanitizers' runtimes have locks that they do not hold over a fork (kernel/tests/check.h). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_FORK_WITH_THREADS 0
#else
#define CAN_FORK_WITH_THREADS 1
#endif

/* A child runs the items that a queue with UW_FORK_INHERITED had at the fork; its parent runs them, too. */
static void inherit(void)
{
	struct uw_work works[INHERITED];
	struct uw_queue *queue = uw_queue_create("inherited", UW_ORDERED | UW_FORK_INHERITED, 0);
	pid_t pid;
	int i, status;

	CHECK(queue);
	CHECK(uw_queue_pause(queue) == 0);
	for (i = 0; i < INHERITED; i++) {
		works[i] = (struct uw_work)UW_WORK_INIT(count);
		CHECK(uw_queue_work(queue, &works[i]) == 1);
	}
	atomic_store(&runs, 0);
	pid = fork();
	CHECK(pid >= 0);
	CHECK(uw_queue_resume(queue) == 0);
	CHECK(uw_queue_destroy(queue) == 0);
	CHECK(atomic_load(&runs) == INHERITED);
	if (pid == 0)
		_exit(0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0);
}

static void *job(void *arg)
{
	return arg;
}

/* Jobs and items on the stack that are pending at the fork: in the child no call waits for them. */
static void frames(void)
{
	struct uw_queue *queue = uw_queue_create("frames", 0, 0);
	struct uw_work work = UW_WORK_INIT(count);
	struct uw_delayed_work armed = UW_DELAYED_WORK_INIT(count);
	struct uw_rcu_work graced = UW_RCU_WORK_INIT(count);
	struct uw_job *jobs[3];
	void *result;
	pid_t pid;
	int i, status;

	CHECK(queue);
	CHECK(uw_queue_pause(queue) == 0);
	for (i = 0; i < 3; i++)
		CHECK((jobs[i] = uw_queue_spawn(queue, job, &i)) != NULL);
	CHECK(uw_queue_work(queue, &work) == 1 && uw_queue_rcu_work(queue, &graced) == 1);
	CHECK(uw_queue_delayed_work(queue, &armed, UINT64_C(3600000000000)) == 1);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(uw_job_is_finished(jobs[0]) == 1 && uw_job_cancel(jobs[0]) == 0);
		CHECK(uw_job_join(jobs[0], &result) == -ECANCELED && strstr(uw_error_text(), "parent process"));
		CHECK(uw_job_join(jobs[1], NULL) == -ECANCELED);
		uw_job_detach(jobs[2]);
		CHECK(uw_work_flush(&work) == 0 && uw_work_flush_helping(&work) == 0 && uw_work_cancel_sync(&work) == 0);
		CHECK(uw_delayed_work_flush(&armed) == 0 && uw_work_disable_sync(&armed.work) == 0);
		CHECK(uw_rcu_work_flush(&graced) == 0 && uw_work_cancel_sync(&graced.work) == 0);
		CHECK(uw_queue_resume(queue) == 0 && uw_queue_destroy(queue) == 0);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(uw_queue_resume(queue) == 0);
	for (i = 0; i < 3; i++)
		CHECK(uw_job_join(jobs[i], &result) == 0 && result == &i);
	CHECK(uw_work_cancel_sync(&armed.work) == 1);
	/* They are on this frame. */
	CHECK(uw_rcu_work_flush(&graced) >= 0 && uw_work_cancel_sync(&graced.work) == 0);
	CHECK(uw_work_flush(&work) >= 0 && uw_work_cancel_sync(&work) == 0);
	CHECK(uw_queue_destroy(queue) == 0);
}

/* How many places are free, all of which are taken. */
static int take_places(struct uw_bounded *bounded)
{
	int count = 0;

	while (uw_bounded_try_reserve(bounded) == 0)
		count++;
	return count;
}

/* A bounded queue whose places pending jobs of the parent have: they are free in the child, and taken in the parent. */
static void places(unsigned flags, int free_in_child)
{
	struct uw_queue *queue = uw_queue_create("places", flags, 0);
	struct uw_bounded *bounded = uw_bounded_create(queue, 3);
	struct uw_job *jobs[2];
	void *result;
	pid_t pid;
	int status;

	CHECK(queue && bounded && uw_queue_pause(queue) == 0);
	jobs[0] = uw_bounded_spawn(bounded, job, &status);
	jobs[1] = uw_bounded_spawn(bounded, job, &status);
	CHECK(jobs[0] && jobs[1]);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct uw_job *mine = uw_bounded_spawn(bounded, job, &status);

		CHECK(mine && take_places(bounded) == free_in_child - 1);
		CHECK(uw_queue_resume(queue) == 0 && uw_job_join(mine, &result) == 0 && result == &status);
		CHECK(uw_queue_flush(queue) == 0);
		/* Those that were taken here stay so; each job has released its own. */
		CHECK(take_places(bounded) == 3 - (free_in_child - 1));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(take_places(bounded) == 1 && uw_queue_resume(queue) == 0);
	CHECK(uw_job_join(jobs[0], &result) == 0 && uw_job_join(jobs[1], &result) == 0);
	CHECK(take_places(bounded) == 2);
	uw_bounded_destroy(bounded);
	CHECK(uw_queue_destroy(queue) == 0);
}

static void ends_its_thread(struct uw_work *work)
{
	(void)work;
	pthread_exit(NULL);
}

static void *job_that_ends_its_thread(void *arg)
{
	pthread_exit(arg);
}

static void *hook_that_ends_its_thread(const struct uw_thread *thread, void *arg)
{
	(void)thread;
	pthread_exit(arg);
}

/* It has no effect on a thread of the library. */
static void is_cancelled(struct uw_work *work)
{
	CHECK(pthread_cancel(pthread_self()) == 0);
	pthread_testcancel();
	count(work);
}

enum ends { AN_ITEM, A_JOB, A_HOOK };

/* A function that ends a thread of the library ends the process, with a message. */
static void thread_ends(enum ends what)
{
	struct uw_work work = UW_WORK_INIT(ends_its_thread);
	char text[4096] = "";
	size_t length = 0;
	ssize_t got;
	int told[2], status;
	pid_t pid;

	CHECK(pipe(told) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct uw_queue *queue = uw_queue_create("ends", 0, 0);

		CHECK(dup2(told[1], STDERR_FILENO) >= 0 && queue);
		if (what == A_HOOK)
			CHECK(uw_thread_hooks_add(hook_that_ends_its_thread, NULL, NULL));
		if (what != AN_ITEM)
			uw_job_join(uw_queue_spawn(queue, what == A_JOB ? job_that_ends_its_thread : job, NULL), NULL);
		else if (uw_queue_work(queue, &work) == 1)
			uw_work_flush(&work);
		_exit(0);
	}
	close(told[1]);
	while (length < sizeof(text) - 1 && (got = read(told[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	close(told[0]);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	CHECK(strstr(text, "did not return: it has ended its thread (pthread_exit"));
}

static void threads_end(void)
{
	struct uw_work work = UW_WORK_INIT(is_cancelled);
	struct uw_queue *queue = uw_queue_create("cancelled", 0, 0);

	atomic_store(&runs, 0);
	CHECK(queue && uw_queue_work(queue, &work) == 1);
	CHECK(uw_queue_destroy(queue) == 0 && atomic_load(&runs) == 1);
	thread_ends(AN_ITEM);
	thread_ends(A_JOB);
	thread_ends(A_HOOK);
}

int main(void)
{
	static char names[THREADS][8] = { "first", "second", "third" };
	pthread_t threads[THREADS];
	int i, status;

	if (CAN_FORK_WITH_THREADS)
		inherit();
	if (CAN_FORK_WITH_THREADS)
		frames();
	if (CAN_FORK_WITH_THREADS) {
		places(UW_UNBOUND, 3);
		places(UW_UNBOUND | UW_FORK_INHERITED, 1);
	}
	if (CAN_FORK_WITH_THREADS)
		threads_end();
	for (i = 0; CAN_FORK_WITH_THREADS && i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, keep_at_it, names[i]) == 0);
	for (i = 0; CAN_FORK_WITH_THREADS && i < FORKS; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			child();
		CHECK(waitpid(pid, &status, 0) == pid);
		if (status != 0) {
			fprintf(stderr, "child %d ended with status %#x\n", i, (unsigned)status);
			return 1;
		}
	}
	atomic_store(&over, true);
	for (i = 0; CAN_FORK_WITH_THREADS && i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	puts("ok");
	return 0;
}
