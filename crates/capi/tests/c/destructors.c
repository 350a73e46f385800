// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The destructors of a thread's keys, in every pass: calls work, or fail with an error. Nothing is printed, which the
 * panic of a Rust thread would do.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

#ifdef __SANITIZE_ADDRESS__
/*
 * The C library does not call what a thread registers for its end in the destructors of its keys, and
 * does not free the registration.
 */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:__cxa_thread_atexit_impl\nleak:uw_rcu_read_lock\n";
}
#endif

/* What a thread has used before its destructors run. */
enum { NOTHING, READ_SIDES, EVERYTHING, WAYS };

static pthread_key_t early, late;
static struct uw_queue *queue;
static struct uw_percpu *percpu;
static struct uw_task *own;
static int way;
static atomic_int graced, noted;

static void nothing(struct uw_work *work)
{
	(void)work;
}

static void after_grace(struct uw_work *work)
{
	(void)work;
	atomic_store(&graced, 1);
}

static void note(struct uw_task_work *work)
{
	(void)work;
	atomic_fetch_add(&noted, 1);
}

static void *job(void *arg)
{
	return arg;
}

/* A read side of a destructor protects. */
static void read_side(void)
{
	struct uw_rcu_work item;

	atomic_store(&graced, 0);
	uw_rcu_work_init(&item, after_grace);
	CHECK(!uw_rcu_is_read_locked());
	CHECK(uw_rcu_read_lock() == 0 && uw_rcu_read_lock() == 0 && uw_rcu_is_read_locked());
	CHECK(uw_queue_rcu_work(queue, &item) == 1);
	CHECK(uw_rcu_read_unlock() == 0 && uw_rcu_is_read_locked());
	/* It would wait for itself. */
	CHECK(uw_rcu_work_flush(&item) == 0);
	/* The grace period cannot have ended. */
	CHECK(!atomic_load(&graced) && uw_work_is_pending(&item.work) == 1);
	CHECK(uw_rcu_read_unlock() == 0 && !uw_rcu_is_read_locked());
	CHECK(uw_rcu_work_flush(&item) >= 0);
	CHECK(uw_work_cancel_sync(&item.work) == 0 && atomic_load(&graced));
}

/* Task work, or the error that says that it has ended. */
static void task_work(void)
{
	static const long arguments[6];
	struct uw_task *task;
	char byte;

	errno = 0;
	task = uw_task_current();
	if (task) {
		CHECK(uw_task_run() == 0 && uw_task_park(0) == 0 && uw_task_fd() >= 0);
		uw_task_put(own);
		own = task;
		return;
	}
	CHECK(errno == ESRCH && strstr(uw_error_text(), "the thread ends"));
	CHECK(uw_task_run() == 0 && uw_task_run_once() == 0 && uw_task_safe_point() == 0 && !uw_task_is_notified());
	CHECK(uw_task_park(0) == -ESRCH && uw_task_fd() == -ESRCH && uw_task_exit() == 0);
	CHECK(uw_task_set_delivery(UW_DELIVERY_LIGHT) == -ESRCH);
	CHECK(uw_task_read(0, &byte, 0) == -ESRCH && uw_task_syscall(0, arguments) == -ESRCH);
}

static void queues(void)
{
	struct uw_work work = UW_WORK_INIT(nothing);
	struct uw_delayed_work delayed = UW_DELAYED_WORK_INIT(nothing);
	struct uw_queue *other;
	void *block, *result;

	CHECK(uw_queue_work(queue, &work) == 1 && uw_work_flush(&work) >= 0 && uw_work_cancel_sync(&work) == 0);
	CHECK(uw_queue_delayed_work(queue, &delayed, 1) == 1 && uw_delayed_work_flush(&delayed) >= 0);
	CHECK(uw_work_cancel_sync(&delayed.work) == 0);
	CHECK(uw_job_join(uw_queue_spawn(queue, job, &result), &result) == 0);
	block = uw_percpu_lock_local(percpu);
	CHECK(block && uw_percpu_unlock(percpu, block) == 0);
	other = uw_queue_create("other", UW_NUMBERED, 0);
	CHECK(other && uw_queue_destroy(other) == 0);
	uw_string_free(uw_dump());
	CHECK(uw_queue_create("other", 0, 9999) == NULL && uw_error_text());
}

static void destructor(void *passes)
{
	const uintptr_t left = (uintptr_t)passes - 1;

	read_side();
	task_work();
	queues();
	if (left > 0)
		pthread_setspecific(way % 2 ? early : late, (void *)left);
}

static void *thread(void *unused)
{
	(void)unused;
	if (way >= READ_SIDES)
		CHECK(uw_rcu_read_lock() == 0 && uw_rcu_read_unlock() == 0);
	/* As many passes as every C library makes. */
	CHECK(pthread_setspecific(way % 2 ? early : late, (void *)4) == 0);
	if (way == EVERYTHING) {
		own = uw_task_current();
		CHECK(own);
	}
	return NULL;
}

int main(void)
{
	struct uw_task_work item;
	pthread_t id;

#ifdef __SANITIZE_THREAD__
	puts("left out: the thread sanitizer ends its own part of a thread before the last destructors");
	return 0;
#endif
	/* Before and after the library's own key. */
	CHECK(pthread_key_create(&early, destructor) == 0);
	queue = uw_queue_create("destructors", 0, 0);
	percpu = uw_percpu_create(64);
	CHECK(queue && percpu);
	uw_task_put(uw_task_current());
	CHECK(pthread_key_create(&late, destructor) == 0);
	for (way = 0; way < WAYS; way++) {
		CHECK(pthread_create(&id, NULL, thread, NULL) == 0);
		CHECK(pthread_join(id, NULL) == 0);
		/* The thread has ended, also if it has registered in a destructor. */
		uw_task_work_init(&item, note);
		CHECK(own && uw_task_work_add(own, &item, UW_NOTIFY_NONE) == -ESRCH);
		uw_task_put(own);
		own = NULL;
	}
	CHECK(atomic_load(&noted) == 0);
	puts("ok");
	return 0;
}
