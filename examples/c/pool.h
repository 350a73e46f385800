// SPDX-License-Identifier: MIT OR Apache-2.0
/* A thread pool as programs write it with pthreads, on uwork: state for each thread, back-pressure. */
#include <errno.h>
#include <stdlib.h>
#include <uwork.h>

struct pool {
	struct uw_queue *queue;
	struct uw_bounded *bounded;    /* at most `backlog` jobs wait */
	struct uw_thread_hooks *hooks; /* make and free a thread's state; may be NULL */
	bool stops_later;              /* may be set: pool_destroy() does not wait for threads that have a state */
};

/*
 * Waits for all jobs and, unless in an item, until each thread has freed its state, after its item of whatever queue.
 * Returns 1 if threads call `stop` later: it and `arg` stay valid then. Negative in a job of the pool, which remains.
 */
static inline int pool_destroy(struct pool *pool)
{
	int left = pool->queue ? uw_queue_destroy(pool->queue) : 0;

	if (left < 0)
		return left;
	uw_bounded_destroy(pool->bounded);
	if (pool->hooks && (left = pool->stops_later ? -EDEADLK : uw_thread_hooks_remove_sync(pool->hooks)) < 0)
		uw_thread_hooks_remove(pool->hooks);
	free(pool);
	return left != 0;
}

/* At most `threads` jobs run. A thread calls `start` when a job asks for its state. Without both hooks there is none. */
static inline struct pool *pool_create(unsigned threads, size_t backlog,
				       void *(*start)(const struct uw_thread *, void *),
				       void (*stop)(const struct uw_thread *, void *, void *), void *arg)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool || ((start || stop) && !(pool->hooks = uw_thread_hooks_add_lazy(start, stop, arg))))
		return free(pool), NULL;
	pool->queue = uw_queue_create("pool", UW_UNBOUND | UW_NUMBERED, threads);
	pool->bounded = pool->queue ? uw_bounded_create(pool->queue, backlog) : NULL;
	return pool->bounded ? pool : (pool_destroy(pool), NULL);
}

/* Waits while the backlog is full; with `try` returns EAGAIN instead. In a job of the pool: only with `try`. */
static inline int pool_submit(struct pool *pool, void *(*func)(void *arg), void *arg, bool try)
{
	struct uw_job *job = try ? uw_bounded_try_spawn(pool->bounded, func, arg) : uw_bounded_spawn(pool->bounded, func, arg);

	if (!job)
		return errno;
	uw_job_detach(job);
	return 0;
}

/* The state of the thread that runs the calling job: a thread of the library, or one that waits for it. */
static inline void *pool_state(const struct pool *pool)
{
	return pool->hooks ? uw_thread_state(pool->hooks) : NULL;
}
