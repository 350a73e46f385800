// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Every function of uwork.h while memory is refused: each allocation of the calling thread in turn, and all of the
 * process. No call ends the process, and afterwards the queues work. A call that fails says that memory or a thread is
 * missing.
 *
 * An argument selects one function: memory_calls uw_queue_create
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "calls.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
/* The sanitizers' runtimes have this allocator. */
int main(void)
{
	return 0;
}
#else

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t align, size_t size);

/* Which allocations fail: one by its number, or these. */
enum { ALL = 0, NONE = -1 };
/* Of the thread that makes the call: its allocations so far, and which fails. */
static __thread bool is_counted;
static __thread long seen, failing;
/* Those of every thread fail. */
static atomic_bool all_fail;

static bool fails(void)
{
	bool is_it = atomic_load_explicit(&all_fail, memory_order_relaxed);

	if (is_counted && ++seen == failing)
		is_it = true;
	if (is_it)
		errno = ENOMEM;
	return is_it;
}

void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	/* The C library needs some bytes where a thread begins, which it cannot refuse. */
	if (!is_counted && count == 1 && size <= 64)
		return __libc_calloc(count, size);
	return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
	return fails() ? NULL : __libc_realloc(block, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return fails() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **block, size_t align, size_t size)
{
	void *found = fails() ? NULL : __libc_memalign(align, size);

	if (!found)
		return ENOMEM;
	*block = found;
	return 0;
}

void *mmap(void *address, size_t size, int access, int flags, int fd, off_t offset)
{
	if (fails())
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, address, size, access, flags, fd, offset);
}

/* In memory that children share. */
static struct {
	/* The allocations of the last child's call. */
	long allocations;
	/* The error text of the call where none fails. */
	char usual[512];
} *shared;

/* What a thread's first call needs of the C library, which has no way to refuse it. */
static void warm_up(void)
{
	struct uw_work work = UW_WORK_INIT(nothing);

	CHECK(uw_rcu_read_lock() == 0 && uw_rcu_read_unlock() == 0);
	uw_task_put(uw_task_current());
	CHECK(uw_queue_work(plain, &work) == 1 && uw_work_flush(&work) >= 0);
	CHECK(uw_work_cancel_sync(&work) == 0);
}

static void in_child(size_t number, long nth)
{
	const char *reasons[] = { "memory", "thread", "os error 12", "Cannot allocate" };
	bool is_named = false;
	size_t i;

	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	close(gate[1]);
	warm_up();
	failing = nth;
	is_counted = true;
	atomic_store(&all_fail, nth == ALL);
	CASES[number].call();
	atomic_store(&all_fail, false);
	is_counted = false;
	shared->allocations = seen;
	if (nth == NONE)
		snprintf(shared->usual, sizeof(shared->usual), "%s", uw_error_text());
	for (i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		is_named = is_named || strstr(uw_error_text(), reasons[i]);
	if (strcmp(shared->usual, uw_error_text()) != 0 && !is_named) {
		fprintf(stderr, "it failed: %s\n", uw_error_text());
		_exit(2);
	}
	if (CASES[number].afterwards == WORKS)
		use_queues();
	_exit(0);
}

/* False if the child has failed. */
static bool survives(size_t number, long nth)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		in_child(number, nth);
	CHECK(waitpid(pid, &status, 0) == pid);
	if (status != 0)
		fprintf(stderr, "%s, allocation %ld of %ld: FAILED: status %#x\n", CASES[number].name, nth, shared->allocations,
			(unsigned)status);
	return status == 0;
}

int main(int argc, char **argv)
{
	size_t i, ran = 0, failed = 0;
	long nth;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	prepare();
	for (i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
		if (argc > 1 && strcmp(argv[1], CASES[i].name) != 0)
			continue;
		ran++;
		fprintf(stderr, "%s\n", CASES[i].name);
		failed += !survives(i, NONE);
		/* Long descriptions have hundreds. */
		for (nth = 1; nth <= shared->allocations; nth += 1 + nth / 8)
			failed += !survives(i, nth);
		failed += !survives(i, ALL);
	}
	end_parent();
	if (ran == 0) {
		fprintf(stderr, "no such function: %s\n", argv[1]);
		return 2;
	}
	printf("%zu functions: %s\n", ran, failed ? "FAILED" : "ok");
	return failed != 0;
}
#endif
