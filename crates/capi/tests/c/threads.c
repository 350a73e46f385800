// SPDX-License-Identifier: MIT OR Apache-2.0
/* Thread hooks: their calls, the state, hooks that block, queue and wait, and hooks of a child. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

struct state {
	unsigned kind;
	int items;
	pid_t process;
};

struct record {
	struct uw_work work;
	struct state *state;
};

static char argument;
static sem_t rescuer_started, rescuer_ended, dedicated_ended, item_ended;
static struct uw_queue *shared;
static struct uw_bounded *bounded;
static struct uw_thread_hooks *hooks;
static sem_t queued_ran, slow_inside, slow_go;
static struct uw_work queued;
static struct uw_delayed_work delayed;
static struct uw_rcu_work graced;
static int refused, queued_by_hook;
static pid_t parent;

/* The sanitizers' runtimes have locks that they do not hold over a fork (kernel/tests/check.h). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_FORK_WITH_THREADS 0
#else
#define CAN_FORK_WITH_THREADS 1
#endif

static long never(void *arg)
{
	(void)arg;
	abort();
}

static void *never_run(void *arg)
{
	abort();
	return arg;
}

static void never_on(int cpu, void *arg)
{
	(void)cpu;
	(void)arg;
	abort();
}

static void *start(const struct uw_thread *thread, void *arg)
{
	struct state *state = malloc(sizeof(*state));

	CHECK(state && arg == &argument && strncmp(thread->name, "uw/", 3) == 0);
	*state = (struct state){ .kind = thread->kind, .process = getpid() };
	if (thread->queue && strcmp(thread->queue, "own") == 0) {
		/* A hook may queue. Its waits are refused at once. */
		CHECK(thread->kind == UW_THREAD_DEDICATED);
		queued_by_hook = uw_queue_work(shared, &queued);
		refused = uw_queue_flush(shared);
		CHECK(uw_queue_drain(shared) == -ENOTRECOVERABLE);
		CHECK(uw_queue_pause(shared) == -ENOTRECOVERABLE);
		CHECK(uw_queue_destroy(shared) == -ENOTRECOVERABLE);
		CHECK(uw_queue_flush_timeout(shared, 1) == -ENOTRECOVERABLE);
		CHECK(uw_queue_pause_timeout(shared, 1) == -ENOTRECOVERABLE);
		CHECK(uw_work_flush(&queued) == -ENOTRECOVERABLE);
		CHECK(uw_work_flush_helping(&queued) == -ENOTRECOVERABLE);
		CHECK(uw_work_cancel_sync(&queued) == -ENOTRECOVERABLE);
		CHECK(uw_work_disable_sync(&queued) == -ENOTRECOVERABLE);
		CHECK(uw_delayed_work_flush(&delayed) == -ENOTRECOVERABLE);
		CHECK(uw_rcu_work_flush(&graced) == -ENOTRECOVERABLE);
		CHECK(uw_thread_hooks_remove_sync(hooks) == -ENOTRECOVERABLE);
		CHECK(uw_work_on_cpu(0, never, NULL, NULL) == -ENOTRECOVERABLE);
		CHECK(uw_on_each_cpu(never_on, NULL) == -ENOTRECOVERABLE);
		CHECK(uw_bounded_reserve(bounded) == -ENOTRECOVERABLE);
		CHECK(uw_bounded_reserve_timeout(bounded, 1) == -ENOTRECOVERABLE);
		CHECK(!uw_bounded_spawn(bounded, never_run, NULL) && errno == ENOTRECOVERABLE);
		CHECK(!uw_bounded_spawn_timeout(bounded, never_run, NULL, 1) && errno == ENOTRECOVERABLE);
		/* It does not wait. */
		CHECK(uw_bounded_try_reserve(bounded) == 0 && uw_bounded_release(bounded) == 0);
		CHECK(uw_shutdown(UW_DRAIN, UINT64_MAX, NULL) == -ENOTRECOVERABLE);
	}
	if (thread->queue && strcmp(thread->queue, "slow") == 0 && getpid() == parent) {
		sem_post(&slow_inside);
		sem_wait(&slow_go);
	}
	if (thread->kind == UW_THREAD_RESCUER) {
		CHECK(strcmp(thread->queue, "reclaim") == 0);
		sem_post(&rescuer_started);
	}
	return state;
}

static void stop(const struct uw_thread *thread, void *state, void *arg)
{
	struct state *own = state;

	/* A forked child calls no hook for a thread of its parent's. */
	CHECK(own->kind == thread->kind && arg == &argument && own->process == getpid());
	free(own);
	if (thread->kind == UW_THREAD_RESCUER)
		sem_post(&rescuer_ended);
	if (thread->kind == UW_THREAD_DEDICATED && strcmp(thread->queue, "own") == 0)
		sem_post(&dedicated_ended);
}

static void use_state(struct uw_work *work)
{
	struct record *record = UW_CONTAINER_OF(work, struct record, work);

	record->state = uw_thread_state(hooks);
	CHECK(record->state);
	record->state->items++;
	CHECK(record->state->process == getpid());
	sem_post(&item_ended);
}

static void run_queued(struct uw_work *work)
{
	(void)work;
	sem_post(&queued_ran);
}

/* Queues an item and waits until a worker has run it. A flush could run it on this thread. */
static unsigned kind_of_worker(struct uw_queue *queue)
{
	struct record record = { .state = NULL };
	unsigned kind;

	uw_work_init(&record.work, use_state);
	CHECK(uw_queue_work(queue, &record.work) == 1);
	sem_wait(&item_ended);
	kind = record.state->kind;
	CHECK(record.state->items > 0);
	CHECK(uw_work_flush(&record.work) >= 0);
	return kind;
}

/* In a child: workers of the child have hooks and states, also where its parent's is in a hook. */
static void child(struct uw_queue *slow)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	struct uw_queue *own;
	struct uw_thread_hooks *late;

	late = uw_thread_hooks_add(start, stop, &argument);
	CHECK(late && uw_thread_hooks_missed(late) == 0 && !uw_thread_state(hooks));
	CHECK(kind_of_worker(shared) == UW_THREAD_WORKER);
	CHECK(kind_of_worker(slow) == UW_THREAD_DEDICATED);
	attrs.dedicated = true;
	own = uw_queue_create_attrs("own", &attrs);
	CHECK(own && kind_of_worker(own) == UW_THREAD_DEDICATED);
	CHECK(uw_queue_destroy(own) == 0);
	uw_bounded_destroy(bounded);
	/* Both pairs of hooks. */
	sem_wait(&dedicated_ended);
	sem_wait(&dedicated_ended);
	_exit(0);
}

/* While a start hook blocks, its pool waits for it, and every other pool goes on. */
static void block(struct uw_queue *bh)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	struct record waiting = { .state = NULL };
	struct uw_queue *slow;
	int status;

	attrs.dedicated = true;
	slow = uw_queue_create_attrs("slow", &attrs);
	CHECK(slow);
	uw_work_init(&waiting.work, use_state);
	CHECK(uw_queue_work(slow, &waiting.work) == 1);
	sem_wait(&slow_inside);
	for (int i = 0; i < 100; i++) {
		CHECK(kind_of_worker(shared) == UW_THREAD_WORKER);
		CHECK(kind_of_worker(bh) == UW_THREAD_BH);
	}
	CHECK(!waiting.state && uw_work_is_pending(&waiting.work) == 1);
	CHECK(uw_work_cancel(&waiting.work) == 1 && uw_queue_work(slow, &waiting.work) == 1);
	if (CAN_FORK_WITH_THREADS) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			child(slow);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(status == 0);
	}
	sem_post(&slow_go);
	sem_wait(&item_ended);
	CHECK(waiting.state && waiting.state->kind == UW_THREAD_DEDICATED);
	CHECK(uw_work_flush(&waiting.work) >= 0 && uw_queue_destroy(slow) == 0);
}

int main(void)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	struct uw_queue *bh, *own, *reclaim;

	sem_init(&rescuer_started, 0, 0);
	sem_init(&rescuer_ended, 0, 0);
	sem_init(&dedicated_ended, 0, 0);
	sem_init(&item_ended, 0, 0);
	sem_init(&queued_ran, 0, 0);
	sem_init(&slow_inside, 0, 0);
	sem_init(&slow_go, 0, 0);
	uw_work_init(&queued, run_queued);
	uw_delayed_work_init(&delayed, run_queued, 0, 0);
	uw_rcu_work_init(&graced, run_queued);
	parent = getpid();

	/* In the debug mode a misuse ends the process. */
	if (!getenv("UWORK_DEBUG")) {
		CHECK(!uw_thread_hooks_add(NULL, NULL, NULL) && errno == EINVAL);
		CHECK(strstr(uw_error_text(), "both hooks are NULL"));
		CHECK(uw_thread_hooks_missed(NULL) == -EINVAL && uw_thread_hooks_remove(NULL) == -EINVAL);
	}
	hooks = uw_thread_hooks_add(start, stop, &argument);
	CHECK(hooks && uw_thread_hooks_missed(hooks) == 0);
	CHECK(!uw_thread_state(hooks));

	shared = uw_queue_create("shared", 0, 0);
	CHECK(shared && kind_of_worker(shared) == UW_THREAD_WORKER);
	bounded = uw_bounded_create(shared, 1);
	CHECK(bounded);
	bh = uw_queue_create("bh", UW_BH, 0);
	CHECK(bh && kind_of_worker(bh) == UW_THREAD_BH);
	attrs.dedicated = true;
	own = uw_queue_create_attrs("own", &attrs);
	CHECK(own && kind_of_worker(own) == UW_THREAD_DEDICATED);
	CHECK(refused == -ENOTRECOVERABLE && queued_by_hook == 1);
	sem_wait(&queued_ran);
	CHECK(uw_queue_destroy(own) == 0);
	sem_wait(&dedicated_ended);

	block(bh);

	reclaim = uw_queue_create("reclaim", UW_MEM_RECLAIM, 0);
	CHECK(reclaim);
	sem_wait(&rescuer_started);
	CHECK(uw_thread_hooks_remove(hooks) == 0);
	CHECK(uw_queue_destroy(reclaim) == 0);
	/* Its thread has called the start hook before the removal. */
	sem_wait(&rescuer_ended);

	CHECK(uw_queue_destroy(bh) == 0 && uw_queue_destroy(shared) == 0);
	return 0;
}
