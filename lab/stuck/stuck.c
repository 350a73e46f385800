/*
 * A program that is stuck, to be looked at by `uwork doctor`: `stuck KIND`. It prints its process's
 * number when its items are stuck, and ends with its standard input. Its twin in Rust is
 * crates/uwork/examples/stuck.rs.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uwork.h>

/* Items that have come to the place where they are stuck. */
static atomic_int stuck;
static pthread_mutex_t locks[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static struct uw_queue *queue, *other;
static int pipes[2];

/* Computes for ever. */
static __attribute__((noinline)) void spins_for_ever(struct uw_work *work)
{
	static volatile unsigned long n;

	(void)work;
	stuck++;
	for (;;)
		n++;
}

/* Takes a lock and then the other, of which another item holds the first. */
static __attribute__((noinline)) void takes_both_locks(int first)
{
	pthread_mutex_lock(&locks[first]);
	stuck++;
	while (stuck < 2)
		;
	pthread_mutex_lock(&locks[!first]);
	stuck++;
}

static void takes_first(struct uw_work *work) { (void)work; takes_both_locks(0); stuck++; }
static void takes_second(struct uw_work *work) { (void)work; takes_both_locks(1); stuck++; }

/* Waits for all items of a queue, of which one waits for all items of this one's queue. */
static __attribute__((noinline)) void flushes_the_other_queue(struct uw_queue *awaited)
{
	stuck++;
	while (stuck < 2)
		;
	uw_queue_flush(awaited);
	stuck++;
}

static void flushes_other(struct uw_work *work) { (void)work; flushes_the_other_queue(other); stuck++; }
static void flushes_first(struct uw_work *work) { (void)work; flushes_the_other_queue(queue); stuck++; }

static void *flushes(void *unused)
{
	stuck++;
	uw_queue_flush(queue);
	return unused;
}

/* Waits for a thread that waits for all items of this one's queue. */
static void waits_for_a_flush_of_its_queue(struct uw_work *work)
{
	pthread_t flusher;

	(void)work;
	pthread_create(&flusher, NULL, flushes, NULL);
	pthread_join(flusher, NULL);
	stuck++;
}

/* Sleeps in a system call: nothing is ever written to the pipe. */
static void reads_from_a_pipe(struct uw_work *work)
{
	char byte;

	(void)work;
	stuck++;
	while (read(pipes[0], &byte, 1) < 1)
		;
}

static void does_nothing(struct uw_work *work) { (void)work; }

int main(int argc, char **argv)
{
	static struct uw_work works[2], behind[8];
	const char *kind = argc > 1 ? argv[1] : "";
	struct stat pids;
	char byte, *folder, path[4096];
	int expected = 1, more = 0, second = 0;

	if (!strcmp(kind, "loop")) {
		uw_work_init(&works[0], spins_for_ever);
	} else if (!strcmp(kind, "locks")) {
		uw_work_init(&works[0], takes_first);
		uw_work_init(&works[1], takes_second);
		expected = 2;
	} else if (!strcmp(kind, "flush")) {
		uw_work_init(&works[0], flushes_other);
		uw_work_init(&works[1], flushes_first);
		expected = 2;
		second = 1;
	} else if (!strcmp(kind, "own")) {
		uw_work_init(&works[0], waits_for_a_flush_of_its_queue);
	} else if (!strcmp(kind, "call")) {
		uw_work_init(&works[0], reads_from_a_pipe);
	} else if (!strcmp(kind, "limit")) {
		uw_work_init(&works[0], reads_from_a_pipe);
		uw_work_init(&works[1], reads_from_a_pipe);
		expected = 2;
		more = 8;
	} else {
		fprintf(stderr, "usage: stuck loop|locks|flush|own|call|limit\n");
		return 2;
	}
	queue = uw_queue_create("stuck", UW_UNBOUND, 2);
	other = uw_queue_create("other", UW_UNBOUND, 1);
	if (!queue || !other || pipe(pipes))
		return 1;
	for (int n = 0; n < expected; n++)
		if (uw_queue_work(n && second ? other : queue, &works[n]) != 1)
			return 1;
	for (int n = 0; n < more; n++) {
		uw_work_init(&behind[n], does_nothing);
		if (uw_queue_work(queue, &behind[n]) != 1)
			return 1;
	}
	folder = getenv("XDG_RUNTIME_DIR");
	if (stat("/proc/self/ns/pid", &pids))
		return 1;
	snprintf(path, sizeof(path), "%s/uwork/%d-%lx.sock", folder ? folder : "", (int)getpid(), (unsigned long)pids.st_ino);
	while (stuck < expected || (folder && access(path, F_OK)))
		usleep(1000);
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	_exit(0);
}
