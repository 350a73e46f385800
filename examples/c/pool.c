// SPDX-License-Identifier: MIT OR Apache-2.0
/* Jobs of the pool in pool.h: each counts in the state of its thread. */
#include <stdatomic.h>
#include <stdio.h>

#include "pool.h"

enum { THREADS = 4, BACKLOG = 8, JOBS = 1000 };

struct state {
	unsigned long jobs; /* of one thread, hence not atomic */
};

static struct pool *pool;
static atomic_int ran, without_state;

static void *start(const struct uw_thread *thread, void *arg)
{
	(void)thread, (void)arg;
	return calloc(1, sizeof(struct state));
}

static void stop(const struct uw_thread *thread, void *state, void *arg)
{
	(void)thread, (void)arg;
	free(state);
}

static void *job(void *arg)
{
	struct state *state = pool_state(pool);

	if (state)
		state->jobs++;
	else
		atomic_fetch_add(&without_state, 1);
	atomic_fetch_add(&ran, 1);
	return arg;
}

int main(void)
{
	int refused = 0;

	pool = pool_create(THREADS, BACKLOG, start, stop, NULL);
	if (!pool)
		return fprintf(stderr, "pool: %s\n", uw_error_text()), 1;
	for (int i = 0; i < JOBS; i++)
		if (pool_submit(pool, job, NULL, false) != 0)
			return fprintf(stderr, "submit: %s\n", uw_error_text()), 1;
	if (uw_queue_flush(pool->queue) != 0 || uw_queue_pause(pool->queue) != 0)
		return 1;
	for (int i = 0; i < BACKLOG + 1; i++)
		refused += pool_submit(pool, job, NULL, true) == EAGAIN;
	if (uw_queue_resume(pool->queue) != 0)
		return 1;
	if (pool_destroy(pool) != 0)
		return fprintf(stderr, "threads still have a state\n"), 1;
	printf("%d jobs ran, %d without state, %d refused while %d waited\n", atomic_load(&ran),
	       atomic_load(&without_state), refused, BACKLOG);
	return 0;
}
