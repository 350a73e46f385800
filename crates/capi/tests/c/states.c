// SPDX-License-Identifier: MIT OR Apache-2.0
/* The states of thread hooks: in every pool of a process, on every thread that runs a job, until when. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <uwork.h>

#include "../../../../examples/c/pool.h"
#include "check.h"

enum { JOBS = 1000 };

struct state {
	long thread;
};

static atomic_int starts, stops, helpers, with, without;
static struct uw_thread_hooks *hooks;
static struct pool *pool;
static sem_t ran;

static long this_thread(void)
{
	return syscall(SYS_gettid);
}

static void connect_it(void *state)
{
	((struct state *)state)->thread = this_thread();
}

static void *start(const struct uw_thread *thread, void *arg)
{
	struct state *state = malloc(sizeof(*state));

	CHECK(state && arg == &starts && thread->name);
	/* A declared block is no wait for items. */
	CHECK(uw_blocking(connect_it, state) == 0);
	atomic_fetch_add(&starts, 1);
	if (thread->kind == UW_THREAD_HELPER) {
		CHECK(!thread->queue);
		atomic_fetch_add(&helpers, 1);
	}
	return state;
}

static void stop(const struct uw_thread *thread, void *state, void *arg)
{
	struct state *own = state;

	CHECK(thread->name && arg == &starts && own->thread == this_thread());
	free(own);
	atomic_fetch_add(&stops, 1);
}

static void *of_pool(void *arg)
{
	struct state *state = pool_state(pool);

	CHECK(!state || state->thread == this_thread());
	atomic_fetch_add(state ? &with : &without, 1);
	return arg;
}

/* pool.h, again and again in one process, with jobs that workers run and jobs that their submitter runs. */
static void pools(void)
{
	for (int round = 0; round < 3; round++) {
		pool = pool_create(4, 8, start, stop, &starts);
		CHECK(pool);
		for (int i = 0; i < JOBS; i++) {
			struct uw_job *job = uw_queue_spawn(pool->queue, of_pool, NULL);

			CHECK(job && uw_job_join(job, NULL) == 0);
			CHECK(pool_submit(pool, of_pool, NULL, false) == 0);
		}
		CHECK(pool_destroy(pool) == 0);
		CHECK(atomic_load(&with) == 2 * JOBS * (round + 1) && atomic_load(&without) == 0);
		/* This thread has freed its state as well. */
		CHECK(atomic_load(&starts) > 0 && atomic_load(&starts) == atomic_load(&stops));
	}
}

/* Both hooks NULL: a pool without states. */
static void pool_without_states(void)
{
	int before = atomic_load(&without);

	pool = pool_create(4, 8, NULL, NULL, NULL);
	CHECK(pool && pool_submit(pool, of_pool, NULL, false) == 0);
	CHECK(pool_destroy(pool) == 0);
	CHECK(atomic_load(&without) == before + 1);
}

static pthread_t foreign;
static sem_t has_a_state, may_end;

static void *is_foreign(void *arg)
{
	(void)arg;
	return pool_state(pool) && pthread_equal(pthread_self(), foreign) ? &foreign : NULL;
}

/* An item of another queue, on a thread that gets a state of the pool: it runs a job of the pool while it joins it. */
static void *runs_on(void *arg)
{
	void *found = NULL;

	(void)arg;
	foreign = pthread_self();
	while (!found)
		CHECK(uw_job_join(uw_queue_spawn(pool->queue, is_foreign, NULL), &found) == 0);
	sem_post(&has_a_state);
	sem_wait(&may_end);
	return NULL;
}

static void *destroys(void *arg)
{
	*(int *)arg = pool_destroy(pool);
	return NULL;
}

static void *destroys_its_own(void *arg)
{
	CHECK(pool_destroy(pool) == -EDEADLK && pool_state(pool));
	return arg;
}

/* Threads with a state are in items that do not end, or of the program, or run the call itself. */
static void pool_whose_threads_are_elsewhere(void)
{
	struct uw_queue *other = uw_queue_create("elsewhere", UW_UNBOUND, 0);
	struct uw_job *job;
	int answer;

	CHECK(other && sem_init(&has_a_state, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
	pool = pool_create(4, 8, start, stop, &starts);
	CHECK(pool && (job = uw_queue_spawn(other, runs_on, NULL)));
	sem_wait(&has_a_state);
	pool->stops_later = true;
	CHECK(pool_destroy(pool) == 1 && atomic_load(&stops) < atomic_load(&starts));
	sem_post(&may_end);
	CHECK(uw_job_join(job, NULL) == 0);

	pool = pool_create(4, 8, start, stop, &starts);
	/* This thread must not run it: it would have a state, and call `stop` at its next use of items only. */
	CHECK(pool && uw_job_join_waiting(uw_queue_spawn(pool->queue, destroys_its_own, NULL), NULL) == 0);
	job = uw_queue_spawn(other, destroys, &answer);
	CHECK(job && uw_job_join(job, NULL) == 0 && answer == 1);
	/* The hooks of both are removed: their threads call `stop` without a further call. */
	while (atomic_load(&stops) != atomic_load(&starts))
		sched_yield();
	CHECK(uw_queue_destroy(other) == 0);
}

static void *has_state(void *arg)
{
	struct state *state = uw_thread_state(hooks);

	(void)arg;
	return state && state->thread == this_thread() ? &ran : NULL;
}

static struct uw_queue *queue;
static pthread_key_t key;
static pthread_t asker;

/* The item runs on the thread that joins it, if no worker is faster. */
static void *is_here(void *arg)
{
	return pthread_equal(pthread_self(), asker) ? has_state(arg) : &asker;
}

static void join_here(void)
{
	void *found = &asker;

	asker = pthread_self();
	while (found == &asker) {
		struct uw_job *job = uw_queue_spawn(queue, is_here, NULL);

		CHECK(job && uw_job_join(job, &found) == 0);
	}
	CHECK(found == &ran);
}

/* Runs after the destructors of thread-local values, uwork's among them. */
static void late(void *arg)
{
	int before = atomic_load(&stops);

	CHECK(arg == &key);
	join_here();
	CHECK(atomic_load(&stops) == before + 1 && !uw_thread_state(hooks));
}

static void *helps(void *arg)
{
	if (arg)
		CHECK(pthread_setspecific(key, arg) == 0);
	join_here();
	CHECK(uw_thread_state(hooks));
	return NULL;
}

/* A thread that has helped frees its state when it ends, also if it helps while it ends. */
static void ends(void)
{
	pthread_t thread;
	int before;

	hooks = uw_thread_hooks_add_lazy(start, stop, &starts);
	queue = uw_queue_create("helped", UW_UNBOUND, 0);
	CHECK(hooks && queue && pthread_key_create(&key, late) == 0);
	for (int late_too = 0; late_too < 2; late_too++) {
		before = atomic_load(&stops);
		CHECK(pthread_create(&thread, NULL, helps, late_too ? &key : NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(atomic_load(&stops) == before + 1 + late_too);
	}
	CHECK(atomic_load(&helpers) >= 3);
	CHECK(uw_thread_hooks_remove_sync(hooks) == 0 && atomic_load(&starts) == atomic_load(&stops));
	CHECK(uw_queue_destroy(queue) == 0);
}

static void *removes(void *arg)
{
	CHECK(has_state(NULL));
	*(int *)arg = uw_thread_hooks_remove_sync(hooks);
	return has_state(NULL);
}

static struct uw_thread_hooks *inner;
static int in_hook;

static void *removes_in_hook(const struct uw_thread *thread, void *arg)
{
	(void)thread, (void)arg;
	in_hook = uw_thread_hooks_remove_sync(hooks);
	return NULL;
}

static void *asks_inner(void *arg)
{
	(void)arg;
	CHECK(!uw_thread_state(inner));
	return NULL;
}

/* An item cannot wait for its own end. */
static void refusals(void)
{
	int answer = 0;
	void *found;

	hooks = uw_thread_hooks_add_lazy(start, stop, &starts);
	queue = uw_queue_create("refuses", UW_UNBOUND, 0);
	CHECK(hooks && queue);
	CHECK(uw_job_join(uw_queue_spawn(queue, removes, &answer), &found) == 0);
	CHECK(answer == -EDEADLK && found);
	inner = uw_thread_hooks_add_lazy(removes_in_hook, NULL, NULL);
	CHECK(uw_job_join(uw_queue_spawn(queue, asks_inner, NULL), NULL) == 0);
	CHECK(in_hook == -ENOTRECOVERABLE);
	CHECK(uw_thread_hooks_remove_sync(inner) == 0 && uw_thread_hooks_remove_sync(hooks) == 0);
	CHECK(uw_job_join(uw_queue_spawn(queue, has_state, NULL), &found) == 0 && !found);
	/* In the debug mode a misuse ends the process. */
	if (!getenv("UWORK_DEBUG")) {
		CHECK(uw_thread_hooks_remove_sync(NULL) == -EINVAL && !uw_thread_hooks_add_lazy(NULL, NULL, NULL));
		CHECK(uw_queue_add_thread_hooks(queue, NULL) == -EINVAL);
		CHECK(uw_queue_add_thread_hooks(NULL, hooks) == -EINVAL);
	}
	CHECK(uw_queue_destroy(queue) == 0);
}

/*
 * A registration beside code that registers its thread itself, as in examples/c/liburcu.c: the thread is
 * registered while at least one of the two needs it.
 */
static __thread int needed;
static __thread bool registered;

static void enter(void)
{
	if (needed++ == 0) {
		CHECK(!registered);
		registered = true;
	}
}

static void leave(void)
{
	if (--needed == 0) {
		CHECK(registered);
		registered = false;
	}
}

static void *enter_hook(const struct uw_thread *thread, void *arg)
{
	(void)thread, (void)arg;
	enter();
	return NULL;
}

static void leave_hook(const struct uw_thread *thread, void *state, void *arg)
{
	(void)thread, (void)state, (void)arg;
	leave();
}

static void *is_registered(void *arg)
{
	(void)arg;
	return registered ? &ran : NULL;
}

static void *posts_registered(void *arg)
{
	*(bool *)arg = registered;
	sem_post(&ran);
	return NULL;
}

static bool on_worker(struct uw_queue *of)
{
	bool answer;
	struct uw_job *job = uw_queue_spawn(of, posts_registered, &answer);

	CHECK(job);
	/* A join could run it on this thread. */
	sem_wait(&ran);
	CHECK(uw_job_join(job, NULL) == 0);
	return answer;
}

static void registrations(void)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	struct uw_queue *other;
	void *found;

	attrs.dedicated = true;
	queue = uw_queue_create("readers", UW_UNBOUND, 0);
	other = uw_queue_create_attrs("other", &attrs);
	hooks = uw_thread_hooks_add_lazy(enter_hook, leave_hook, NULL);
	CHECK(queue && other && hooks && !on_worker(queue));
	CHECK(uw_queue_add_thread_hooks(queue, hooks) == 0);
	enter();
	for (int i = 0; i < JOBS; i++) {
		CHECK(uw_job_join(uw_queue_spawn(queue, is_registered, NULL), &found) == 0 && found);
		CHECK(on_worker(queue) && !on_worker(other));
	}
	leave();
	for (int i = 0; i < JOBS; i++)
		CHECK(uw_job_join(uw_queue_spawn(queue, is_registered, NULL), &found) == 0 && found);
	CHECK(uw_thread_hooks_remove_sync(hooks) == 0 && !registered && needed == 0);
	CHECK(!on_worker(queue));
	CHECK(uw_queue_destroy(queue) == 0 && uw_queue_destroy(other) == 0);
}

int main(void)
{
	sem_init(&ran, 0, 0);
	pools();
	pool_without_states();
	pool_whose_threads_are_elsewhere();
	ends();
	refusals();
	registrations();
	return 0;
}
