// SPDX-License-Identifier: MIT OR Apache-2.0
/* Task work: every function of that part of uwork.h. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

struct item {
	struct uw_task_work work;
	pthread_t ran_on;
	atomic_int runs;
};

static void run(struct uw_task_work *work)
{
	struct item *item = UW_CONTAINER_OF(work, struct item, work);

	CHECK(uw_task_work_is_pending(work) == 0);
	item->ran_on = pthread_self();
	atomic_fetch_add(&item->runs, 1);
}

static void init(struct item *item)
{
	uw_task_work_init(&item->work, run);
	atomic_store(&item->runs, 0);
}

static bool is(struct uw_task_work *work, void *arg)
{
	return work == arg;
}

static bool is_none(struct uw_task_work *work, void *arg)
{
	(void)work, (void)arg;
	return false;
}

static void own_thread(void)
{
	struct uw_task *task = uw_task_current();
	struct item items[3];

	CHECK(task);
	for (int at = 0; at < 3; at++)
		init(&items[at]);
	CHECK(uw_task_safe_point() == 0 && !uw_task_is_notified());
	CHECK(uw_task_work_add(task, &items[0].work, UW_NOTIFY_NONE) == 1);
	CHECK(uw_task_work_add(task, &items[0].work, UW_NOTIFY_NONE) == 0);
	CHECK(uw_task_work_is_pending(&items[0].work) == 1);
	CHECK(uw_task_safe_point() == 0 && uw_task_run_once() == 1 && uw_task_run() == 0);

	CHECK(uw_task_work_add(task, &items[0].work, UW_NOTIFY_RESUME) == 1 && uw_task_is_notified());
	CHECK(uw_task_work_add(task, &items[1].work, UW_NOTIFY_SIGNAL) == 1);
	CHECK(uw_task_work_add(task, &items[2].work, UW_NOTIFY_NONE) == 1);
	CHECK(uw_task_work_cancel(task, &items[0].work) == 1 && uw_task_work_cancel(task, &items[0].work) == 0);
	CHECK(uw_task_work_cancel_match(task, is, &items[2].work) == &items[2].work);
	CHECK(uw_task_work_cancel_match(task, is_none, NULL) == NULL && errno == ENOENT);
	CHECK(uw_task_safe_point() == 1 && !uw_task_is_notified());
	CHECK(atomic_load(&items[0].runs) == 1 && atomic_load(&items[1].runs) == 1);
	CHECK(atomic_load(&items[2].runs) == 0);

	CHECK(uw_task_work_add(task, &items[2].work, UW_NOTIFY_SIGNAL) == 1 && uw_task_park(-1) == 1);
	CHECK(uw_task_park(1000) == 0);
	uw_task_put(task);
	uw_task_put(NULL);
}

/* A thread that sleeps in one of several ways, until it is told to end. */
struct sleeper {
	void (*sleep)(struct sleeper *sleeper);
	unsigned delivery;
	struct uw_task *task;
	sem_t ready;
	int pipe[2];
	atomic_bool is_over;
};

static void sleep_parked(struct sleeper *sleeper)
{
	(void)sleeper;
	CHECK(uw_task_park(-1) >= 0);
}

static int wait_in_poll(void *arg)
{
	struct pollfd polled = { .fd = uw_task_fd(), .events = POLLIN };

	CHECK(arg && polled.fd >= 0);
	return poll(&polled, 1, -1);
}

static void sleep_in_poll(struct sleeper *sleeper)
{
	int answer = uw_task_wait(wait_in_poll, sleeper);

	CHECK(answer == 1 || answer == -EINTR);
	uw_task_run_once();
}

static void sleep_in_read(struct sleeper *sleeper)
{
	char byte;
	ptrdiff_t bytes = uw_task_read(sleeper->pipe[0], &byte, 1);

	/* Ended by the item that ends the thread, or by a signal that arrived late. */
	CHECK((bytes == 1 && byte == 'x') || bytes == -EINTR);
}

static void sleep_in_a_system_call(struct sleeper *sleeper)
{
	char byte;
	const long arguments[6] = { sleeper->pipe[0], (long)(intptr_t)&byte, 1 };
	long answer = uw_task_syscall(SYS_read, arguments);

	CHECK(answer == -EINTR || answer == 1);
	uw_task_safe_point();
}

static void *be_asleep(void *arg)
{
	struct sleeper *sleeper = arg;

	CHECK(uw_task_set_delivery(sleeper->delivery) == 0);
	sleeper->task = uw_task_current();
	CHECK(sleeper->task);
	sem_post(&sleeper->ready);
	while (!atomic_load(&sleeper->is_over))
		sleeper->sleep(sleeper);
	return NULL;
}

struct counted {
	struct uw_task_work work;
	sem_t *ran;
	struct sleeper *ends;
};

static void count(struct uw_task_work *work)
{
	struct counted *counted = UW_CONTAINER_OF(work, struct counted, work);

	if (counted->ends) {
		atomic_store(&counted->ends->is_over, true);
		CHECK(write(counted->ends->pipe[1], "x", 1) == 1);
	}
	sem_post(counted->ran);
}

static void sleepers(void)
{
	static const struct {
		void (*sleep)(struct sleeper *sleeper);
		unsigned delivery;
	} ways[] = {
		{ sleep_parked, UW_DELIVERY_LIGHT },         { sleep_parked, UW_DELIVERY_AUTO },
		{ sleep_parked, UW_DELIVERY_SIGNAL },        { sleep_in_poll, UW_DELIVERY_LIGHT },
		{ sleep_in_read, UW_DELIVERY_AUTO },         { sleep_in_read, UW_DELIVERY_LIGHT },
		{ sleep_in_a_system_call, UW_DELIVERY_AUTO },
	};

	for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
		struct sleeper sleeper = { .sleep = ways[way].sleep, .delivery = ways[way].delivery };
		struct counted counted;
		struct item late;
		struct uw_task *task;
		pthread_t thread;
		sem_t ran;

		CHECK(pipe(sleeper.pipe) == 0);
		sem_init(&sleeper.ready, 0, 0);
		sem_init(&ran, 0, 0);
		CHECK(pthread_create(&thread, NULL, be_asleep, &sleeper) == 0);
		sem_wait(&sleeper.ready);
		task = uw_task_get(sleeper.task);
		CHECK(task);
		uw_task_put(sleeper.task);
		uw_task_work_init(&counted.work, count);
		counted.ran = &ran;
		for (int round = 0; round <= 1000; round++) {
			counted.ends = round == 1000 ? &sleeper : NULL;
			CHECK(uw_task_work_add(task, &counted.work, UW_NOTIFY_SIGNAL) == 1);
			sem_wait(&ran);
		}
		CHECK(pthread_join(thread, NULL) == 0);
		init(&late);
		CHECK(uw_task_work_add(task, &late.work, UW_NOTIFY_SIGNAL) == -ESRCH);
		CHECK(uw_task_work_is_pending(&late.work) == 0);
		uw_task_put(task);
		close(sleeper.pipe[0]);
		close(sleeper.pipe[1]);
	}
}

static void *exit_early(void *arg)
{
	struct uw_task *task = uw_task_current();
	struct item *item = arg;

	CHECK(uw_task_work_add(task, &item->work, UW_NOTIFY_NONE) == 1);
	CHECK(uw_task_exit() == 0 && atomic_load(&item->runs) == 1);
	CHECK(uw_task_work_add(task, &item->work, UW_NOTIFY_NONE) == -ESRCH);
	uw_task_put(task);
	return NULL;
}

static void early_exit(void)
{
	struct item item;
	pthread_t thread;

	init(&item);
	CHECK(pthread_create(&thread, NULL, exit_early, &item) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(atomic_load(&item.runs) == 1);
}

static void errors_have_texts(void)
{
	struct uw_task *task = uw_task_current();
	struct item item;
	int fds[2];
	char byte;

	init(&item);
	CHECK(uw_task_work_add(task, &item.work, 3) == -EINVAL && strstr(uw_error_text(), "allowed"));
	CHECK(uw_task_set_delivery(3) == -EINVAL && strstr(uw_error_text(), "allowed"));
	CHECK(uw_task_set_signal(SIGUSR1, false) == -EINVAL && strstr(uw_error_text(), "allowed"));
	CHECK(uw_task_set_signal(SIGRTMIN + 1, false) == -EBUSY);
	CHECK(pipe(fds) == 0 && uw_task_read(fds[0], NULL, 0) == 0);
	close(fds[0]);
	close(fds[1]);
	CHECK(uw_task_read(-1, &byte, 1) == -EBADF && uw_task_read(1000000, &byte, 1) == -EBADF);
	uw_task_put(task);
}

/* Not in the debug mode, in which these calls end the process. */
static void misuse(void)
{
	struct uw_task *task = uw_task_current();
	struct uw_task_work none;

	memset(&none, 0, sizeof(none));
	CHECK(uw_task_work_add(task, &none, UW_NOTIFY_NONE) == -EINVAL);
	CHECK(uw_task_work_add(task, NULL, UW_NOTIFY_NONE) == -EINVAL);
	CHECK(uw_task_work_add(NULL, &none, UW_NOTIFY_NONE) == -EINVAL);
	CHECK(uw_task_work_cancel(task, NULL) == -EINVAL && uw_task_work_is_pending(NULL) == -EINVAL);
	CHECK(uw_task_work_cancel_match(task, NULL, NULL) == NULL && errno == EINVAL);
	CHECK(uw_task_get(NULL) == NULL && errno == EINVAL);
	CHECK(uw_task_wait(NULL, NULL) == -EINVAL && uw_task_syscall(SYS_getpid, NULL) == -EINVAL);
	CHECK(uw_task_read(0, NULL, 1) == -EINVAL);
	uw_task_put(task);
}

int main(void)
{
	own_thread();
	sleepers();
	early_exit();
	errors_have_texts();
	if (!getenv("UWORK_DEBUG"))
		misuse();
	puts("task: ok");
	return 0;
}
