// SPDX-License-Identifier: MIT OR Apache-2.0
/* Thread hooks: their calls, the state, and what a hook must not do. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include <uwork.h>

#include "check.h"

struct state {
	unsigned kind;
	int items;
};

struct record {
	struct uw_work work;
	struct state *state;
};

static char argument;
static sem_t rescuer_started, rescuer_ended, dedicated_ended, item_ended;
static struct uw_queue *shared;
static struct uw_thread_hooks *hooks;
static int refused;

static void *start(const struct uw_thread *thread, void *arg)
{
	struct state *state = malloc(sizeof(*state));

	CHECK(state && arg == &argument && strncmp(thread->name, "uw/", 3) == 0);
	*state = (struct state){ .kind = thread->kind };
	if (thread->kind == UW_THREAD_DEDICATED) {
		/* The waits of a hook are refused at once. */
		CHECK(strcmp(thread->queue, "own") == 0);
		refused = uw_queue_flush(shared);
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

	CHECK(own->kind == thread->kind && arg == &argument);
	free(own);
	if (thread->kind == UW_THREAD_RESCUER)
		sem_post(&rescuer_ended);
	if (thread->kind == UW_THREAD_DEDICATED)
		sem_post(&dedicated_ended);
}

static void use_state(struct uw_work *work)
{
	struct record *record = UW_CONTAINER_OF(work, struct record, work);

	record->state = uw_thread_state(hooks);
	CHECK(record->state);
	record->state->items++;
	sem_post(&item_ended);
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

int main(void)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	struct uw_queue *bh, *own, *reclaim;

	sem_init(&rescuer_started, 0, 0);
	sem_init(&rescuer_ended, 0, 0);
	sem_init(&dedicated_ended, 0, 0);
	sem_init(&item_ended, 0, 0);

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
	bh = uw_queue_create("bh", UW_BH, 0);
	CHECK(bh && kind_of_worker(bh) == UW_THREAD_BH);
	attrs.dedicated = true;
	own = uw_queue_create_attrs("own", &attrs);
	CHECK(own && kind_of_worker(own) == UW_THREAD_DEDICATED);
	CHECK(refused == -ENOTRECOVERABLE);
	CHECK(uw_queue_destroy(own) == 0);
	sem_wait(&dedicated_ended);

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
