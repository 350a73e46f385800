// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Every function of uwork.h as the first one that a forked child calls. Afterwards the child uses its queues.
 *
 * During the call a cancellation of the thread is pending (pthread_cancel): no function is a cancellation point. The same
 * holds for a call in a child that has used its queues before, on a thread that ends with the cancellation afterwards.
 *
 * An argument selects one function: first_calls uw_queue_set_nice
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "calls.h"

static void was_cancelled(void *name)
{
	fprintf(stderr, "%s is a cancellation point\n", (const char *)name);
	_exit(3);
}

static void call_cancelled(size_t number)
{
	CHECK(pthread_cancel(pthread_self()) == 0);
	pthread_cleanup_push(was_cancelled, (void *)(uintptr_t)CASES[number].name);
	CASES[number].call();
	pthread_cleanup_pop(0);
}

static void *cancelled_thread(void *number)
{
	call_cancelled(*(size_t *)number);
	pthread_testcancel();
	return NULL;
}

/* In a child that has used its queues, on a thread that is cancelled meanwhile. */
static void in_warm_child(size_t number)
{
	pthread_t thread;
	void *end;

	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	close(gate[1]);
	use_queues();
	CHECK(pthread_create(&thread, NULL, cancelled_thread, &number) == 0);
	CHECK(pthread_join(thread, &end) == 0);
	CHECK(end == PTHREAD_CANCELED);
	if (CASES[number].afterwards == WORKS)
		use_queues();
	_exit(0);
}

static void in_child(size_t number)
{
	/* uw_work_cancel() took one of them. */
	const bool cancels = strcmp(CASES[number].name, "uw_work_cancel") == 0;

	/* A child that hangs ends with its parent, which the harness ends. */
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	close(gate[1]);
	call_cancelled(number);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
	if (CASES[number].afterwards == WORKS) {
		use_queues();
		CHECK(atomic_load(&inherited_runs) == (cancels ? 3 : 4));
	}
	_exit(0);
}

/* The sanitizers' runtimes have locks that they do not hold over a fork (kernel/tests/check.h). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_FORK_WITH_THREADS 0
#else
#define CAN_FORK_WITH_THREADS 1
#endif

int main(int argc, char **argv)
{
	size_t i, ran = 0;
	int status, failed = 0;

	if (!CAN_FORK_WITH_THREADS)
		return 0;
	prepare();
	for (i = 0; i < 2 * (sizeof CASES / sizeof *CASES); i++) {
		const size_t number = i / 2;
		const bool is_warm = i % 2;
		pid_t pid;

		if (argc > 1 && strcmp(argv[1], CASES[number].name) != 0)
			continue;
		/* Before the call: the last line names a function that hangs. */
		fprintf(stderr, "%s\n", CASES[number].name);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0 && is_warm)
			in_warm_child(number);
		else if (pid == 0)
			in_child(number);
		CHECK(waitpid(pid, &status, 0) == pid);
		if (status != 0) {
			fprintf(stderr, "%s: FAILED as %s call of a child: status %#x\n", CASES[number].name,
				is_warm ? "a later" : "the first", (unsigned)status);
			failed = 1;
		}
		ran += !is_warm;
	}
	end_parent();
	if (ran == 0) {
		fprintf(stderr, "no such function: %s\n", argv[1]);
		return 2;
	}
	printf("%zu functions: %s\n", ran, failed ? "FAILED" : "ok");
	return failed;
}
