// SPDX-License-Identifier: MIT OR Apache-2.0
/* A thread pool as programs write it with pthreads, on uwork: state for each thread, back-pressure. */
#include <errno.h>
#include <stdlib.h>
#include <uwork.h>

struct pool {
	struct uw_queue *queue;
	struct uw_bounded *bounded;    /* at most `backlog` jobs wait */
	struct uw_thread_hooks *hooks; /* make and free a thread's state */
};

/* Waits for all jobs and for the library's threads to free their states. These threads are shared, and stay. */
static inline void pool_destroy(struct pool *pool)
{
	if (pool->queue)
		uw_queue_destroy(pool->queue);
	uw_bounded_destroy(pool->bounded);
	if (pool->hooks)
		uw_thread_hooks_remove_sync(pool->hooks);
	free(pool);
}

/* At most `threads` jobs run. A thread that runs one calls `start` when the job asks for the state. */
static inline struct pool *pool_create(unsigned threads, size_t backlog,
				       void *(*start)(const struct uw_thread *, void *),
				       void (*stop)(const struct uw_thread *, void *, void *), void *arg)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->hooks = uw_thread_hooks_add_lazy(start, stop, arg);
	pool->queue = uw_queue_create("pool", UW_UNBOUND | UW_NUMBERED, threads);
	if (pool->queue)
		pool->bounded = uw_bounded_create(pool->queue, backlog);
	if (pool->hooks && pool->bounded)
		return pool;
	pool_destroy(pool);
	return NULL;
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
	return uw_thread_state(pool->hooks);
}
