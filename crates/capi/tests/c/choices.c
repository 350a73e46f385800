// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Choices before the library starts; reports: the watchdog's about C functions, and those of queues
 * that save power.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

static sem_t reported, reported_deaf, reported_slack, reported_mask;
static int held[2];

/* Each stall is reported once. The test ignores all other reports. */
static void reporter(const char *text)
{
	/* The report names the function of the item that is in the way. */
	if (strstr(text, "stuck_on_a_pipe"))
		sem_post(&reported);
	if (strstr(text, "in stuck_and_deaf"))
		sem_post(&reported_deaf);
	if (strstr(text, "\"saving\" arms itself for 1ms later with a slack of 5ms"))
		sem_post(&reported_slack);
	if (strstr(text, "that were chosen for unbound queues"))
		sem_post(&reported_mask);
}

/* The same, after a replacement: passes on the reports and counts them in its argument. */
static void counting_reporter(void *arg, const char *text)
{
	atomic_fetch_add((atomic_int *)arg, 1);
	reporter(text);
}

static void stuck_on_a_pipe(struct uw_work *work)
{
	char byte;

	(void)work;
	CHECK(read(held[0], &byte, 1) == 1);
}

/*
 * Blocks all signals as well, so its stack cannot be read: like a thread that is preempted for a
 * while.
 */
static void stuck_and_deaf(struct uw_work *work)
{
	sigset_t all, before;

	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
	stuck_on_a_pipe(work);
	CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

static void nothing(struct uw_work *work)
{
	(void)work;
}

/* More than threads have by default. */
#define LARGE_STACK ((size_t)48 << 20)

static void note_stack(struct uw_work *work)
{
	size_t *size = (size_t *)(void *)(work + 1);
	pthread_attr_t attributes;

	CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
	CHECK(pthread_attr_getstacksize(&attributes, size) == 0);
	pthread_attr_destroy(&attributes);
}

static void stacks(void)
{
	struct uw_queue *queue = uw_queue_create("stacks", 0, 0);
	struct {
		struct uw_work work;
		size_t size;
	} item = { UW_WORK_INIT(note_stack), 0 };

	CHECK(queue && uw_queue_work(queue, &item.work) == 1 && uw_work_flush(&item.work) >= 0);
	CHECK(uw_work_cancel_sync(&item.work) == 0);
	CHECK(getenv("UWORK_STACK") || item.size >= LARGE_STACK);
	CHECK(uw_queue_destroy(queue) == 0);
}

/* The C library takes it from each thread's stack. */
static __thread char of_thread[3 << 20];

/* What the smallest stack has for functions, apart from the library's own. */
static void use_stack(struct uw_work *work)
{
	volatile char frame[80 << 10];
	size_t i;

	(void)work;
	for (i = 0; i < sizeof(frame); i += 1024)
		frame[i] = 1;
	of_thread[sizeof(of_thread) - 1] = frame[0];
	CHECK(of_thread[sizeof(of_thread) - 1] == 1);
}

/* The smallest choice leaves the thread's static data out: items, reports and dumps have their stacks. */
static void smallest_stack(void)
{
	struct uw_setup setup = UW_SETUP_INIT;
	struct uw_work work = UW_WORK_INIT(use_stack);
	struct uw_queue *queue;
	pid_t child = fork();
	int status;

	if (child == 0) {
		setup.stack_size = 128 << 10;
		CHECK(uw_setup(&setup) == 0);
		queue = uw_queue_create("small", UW_MEM_RECLAIM, 0);
		CHECK(queue && uw_queue_work(queue, &work) == 1 && uw_work_flush(&work) >= 0);
		CHECK(uw_work_cancel_sync(&work) == 0);
		uw_string_free(uw_dump());
		_exit(uw_queue_destroy(queue) == 0 ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* A program that was compiled before the structure had its last member. */
static void earlier_setup(void)
{
	struct uw_setup setup = UW_SETUP_INIT;
	pid_t child = fork();
	int status;

	if (child == 0) {
		setup.size = offsetof(struct uw_setup, stack_size);
		setup.stack_size = 1;
		_exit(uw_setup(&setup) == 0 ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void setup(void)
{
	struct uw_setup setup = UW_SETUP_INIT;
	char *dump, text[16];

	/* In the debug mode this call ends the process. */
	CHECK(getenv("UWORK_DEBUG") || uw_setup(NULL) == -EINVAL);
	setup.size = 4;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "UW_SETUP_INIT"));
	setup.size = sizeof(setup);
	setup.blocking_tier = UW_TIER_STANDBY + 1;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "0 to 4"));
	setup.blocking_tier = UW_TIER_SAMPLING;
	setup.percpu_mode = UW_PERCPU_ASYMMETRIC + 1;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "0 to 3"));
	setup.percpu_mode = UW_PERCPU_REMOTE;
	setup.power = UW_POWER_SAVE + 1;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "0 to 2"));
	setup.power = UW_POWER_SAVE;
	setup.pool_workers_max = 500;
	setup.stack_size = 4096;
	CHECK(uw_setup(&setup) == -EINVAL && strstr(uw_error_text(), "4096 bytes; allowed are 131072 (128K) to"));
	setup.stack_size = LARGE_STACK;
	CHECK(uw_setup(&setup) == 0);
	CHECK(uw_setup(&setup) == -EEXIST && strstr(uw_error_text(), "already"));

	CHECK(getenv("UWORK_WORKERS") ||
	      (uw_sysfs_get("module/parameters/pool_workers_max", text, sizeof(text)) == 3 && strcmp(text, "500") == 0));
	dump = uw_dump();
	CHECK(dump && (getenv("UWORK_BLOCKING") || strstr(dump, "sampling")));
	uw_string_free(dump);
}

static void wait_for(sem_t *report)
{
	while (sem_wait(report) != 0)
		CHECK(errno == EINTR);
}

/* Keeps an item in the way of others until a report has named it. */
static void in_the_way(uw_work_fn func, sem_t *named)
{
	struct uw_queue *queue = uw_queue_create("in-order", UW_ORDERED, 0);
	struct uw_work stuck = UW_WORK_INIT(func);
	struct uw_work behind = UW_WORK_INIT(nothing);

	CHECK(queue);
	CHECK(uw_queue_work(queue, &stuck) == 1 && uw_queue_work(queue, &behind) == 1);
	wait_for(named);
	CHECK(write(held[1], "x", 1) == 1);
	CHECK(uw_queue_destroy(queue) == 0);
}

static void watchdog(void)
{
	CHECK(uw_watchdog_thresh() == 30ull * 1000 * 1000 * 1000);
	uw_watchdog_set_thresh(1);
	CHECK(uw_watchdog_thresh() == 1000 * 1000);
	uw_watchdog_touch();

	CHECK(pipe(held) == 0 && sem_init(&reported, 0, 0) == 0 && sem_init(&reported_deaf, 0, 0) == 0);
	CHECK(uw_set_reporter(reporter) == 0);
	in_the_way(stuck_on_a_pipe, &reported);
	in_the_way(stuck_and_deaf, &reported_deaf);
	uw_watchdog_set_thresh(0);
	CHECK(uw_watchdog_thresh() == 0);
}

/* Reads from the pipe until the text has come. */
static void read_until(int from, const char *wanted)
{
	static char text[1 << 20];
	size_t length = 0;
	ssize_t got;

	while (!strstr(text, wanted)) {
		CHECK(length < sizeof(text) - 1);
		got = read(from, text + length, sizeof(text) - 1 - length);
		CHECK(got > 0 || (got < 0 && errno == EINTR));
		length += got > 0 ? (size_t)got : 0;
	}
}

static void dump_on_a_signal(void)
{
	struct uw_queue *queue = uw_queue_create("signalled", 0, 0);
	int before = dup(2), ends[2];

	CHECK(queue && before >= 0 && pipe(ends) == 0);
	CHECK(uw_dump_on_signal(SIGKILL) == -EINVAL && strstr(uw_error_text(), "signal 9"));
	CHECK(uw_dump_on_signal(SIGSEGV) == -EINVAL && strstr(uw_error_text(), "reports faults"));
	CHECK(uw_dump_on_signal(SIGUSR2) == 0 && uw_dump_on_signal(SIGUSR2) == 0);
	CHECK(dup2(ends[1], 2) == 2);
	CHECK(raise(SIGUSR2) == 0);
	/* The last part. */
	read_until(ends[0], "\nstacks of ");
	CHECK(dup2(before, 2) == 2 && close(before) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
	CHECK(uw_queue_destroy(queue) == 0);
}

static struct uw_queue *saving;
static struct uw_delayed_work periodic, late;
static int cpu_of_late;

static void again(struct uw_work *work)
{
	(void)work;
	uw_queue_delayed_work(saving, &periodic, 1000 * 1000);
}

static void note_cpu(struct uw_work *work)
{
	(void)work;
	cpu_of_late = sched_getcpu();
}

/* The main thread's mask is that of the process. */
static void use_cpus(const cpu_set_t *cpus)
{
	CHECK(sched_setaffinity(0, sizeof(*cpus), cpus) == 0);
}

/* The process loses the CPU that was chosen for unbound queues, while an item is armed. */
static void mask_becomes_empty(void)
{
	cpu_set_t all, other;
	unsigned first = 0, chosen;
	char mask[300];

	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	if (CPU_COUNT(&all) < 2) {
		puts("mask_becomes_empty: skipped: one CPU");
		return;
	}
	while (!CPU_ISSET(first, &all))
		first++;
	for (chosen = first + 1; !CPU_ISSET(chosen, &all);)
		chosen++;
	/* As the kernel prints masks: words of 32 CPUs, the highest first. */
	snprintf(mask, sizeof(mask), "%x", 1u << chosen % 32);
	for (unsigned word = 0; word < chosen / 32; word++)
		strcat(mask, ",00000000");
	CHECK(uw_sysfs_set("cpumask", mask) == 0);
	CHECK(uw_queue_delayed_work(saving, &late, INT64_MAX) == 1);

	CPU_ZERO(&other);
	CPU_SET(first, &other);
	use_cpus(&other);
	wait_for(&reported_mask);
	CHECK(uw_delayed_work_flush(&late) == 1 && cpu_of_late == (int)first);
	use_cpus(&all);
}

static void power(void)
{
	static atomic_int reports;

	CHECK(sem_init(&reported_slack, 0, 0) == 0 && sem_init(&reported_mask, 0, 0) == 0);
	CHECK(getenv("UWORK_DEBUG") || uw_replace_reporter(NULL, NULL) == -EINVAL);
	CHECK(uw_replace_reporter(counting_reporter, &reports) == 0 && uw_set_reporter(reporter) == -EEXIST);
	saving = uw_queue_create("saving", UW_POWER_EFFICIENT, 0);
	CHECK(saving && uw_queue_set_timer_slack(saving, 5 * 1000 * 1000) == 0);
	uw_delayed_work_init(&periodic, again, 0, 0);
	uw_delayed_work_init(&late, note_cpu, 0, 0);
	CHECK(uw_queue_delayed_work(saving, &periodic, 1000 * 1000) == 1);
	wait_for(&reported_slack);
	CHECK(atomic_load(&reports) >= 1);
	mask_becomes_empty();
	/* It has armed itself many times, and was reported once. */
	CHECK(sem_trywait(&reported_slack) == -1 && errno == EAGAIN);
	CHECK(uw_work_disable_sync(&periodic.work) >= 0);
	CHECK(uw_queue_destroy(saving) == 0);
}

int main(void)
{
	earlier_setup();
	smallest_stack();
	setup();
	stacks();
	watchdog();
	dump_on_a_signal();
	power();
	puts("ok");
	return 0;
}
