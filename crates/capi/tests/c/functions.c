// SPDX-License-Identifier: MIT OR Apache-2.0
/* Jobs, functions on CPUs, and the remaining calls. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "item.h"

static void *same(void *arg)
{
	CHECK(uw_current_work() == NULL);
	return arg;
}

static long on_cpu(void *arg)
{
	return *(int *)arg + 1;
}

static void on_each(int cpu, void *arg)
{
	CHECK(cpu >= 0);
	atomic_fetch_add((atomic_int *)arg, 1);
}

static void waits(void *arg)
{
	*(bool *)arg = true;
}

static void *note_thread(void *place)
{
	*(pthread_t *)place = pthread_self();
	return place;
}

static void *join_in_own_queue(void *queue)
{
	int number = 1;
	struct uw_job *job = uw_queue_spawn(queue, same, &number);

	CHECK(job);
	if (!uw_job_is_finished(job))
		CHECK(uw_job_join_waiting(job, NULL) == -EDEADLK);
	else
		uw_job_detach(job);
	return queue;
}

static void functions(void)
{
	struct uw_queue *queue = make("functions");
	unsigned long mask[16];
	atomic_int each = 0;
	bool waited = false;
	struct uw_job *job;
	int number = 41, cpus, cpu = first_cpu();
	void *result;
	long value;
	char version[48];

	job = uw_queue_spawn(queue, same, &number);
	CHECK(job && uw_job_is_finished(job) >= 0);
	CHECK(uw_job_join(job, &result) == 0 && result == &number);
	for (int round = 0; round < 200; round++) {
		pthread_t worker;

		job = uw_queue_spawn(queue, note_thread, &worker);
		CHECK(job && uw_job_join_waiting(job, &result) == 0 && result == &worker);
		CHECK(!pthread_equal(worker, pthread_self()));
	}
	job = uw_queue_spawn(queue, join_in_own_queue, queue);
	CHECK(job && uw_job_join_waiting(job, &result) == 0 && result == queue);
	job = uw_queue_spawn(queue, same, &number);
	CHECK(job);
	uw_job_detach(job);
	CHECK(uw_queue_flush(queue) == 0);
	CHECK(uw_freeze_begin() == 0 && uw_freeze_begin() == -EALREADY);
	CHECK(uw_freeze_is_busy() >= 0 && uw_thaw() == 0 && uw_thaw() == -EINVAL);
	CHECK(uw_blocking(waits, &waited) == 0 && waited);
	waited = false;
	CHECK(uw_unpinned(waits, &waited) == 0 && waited);
	CHECK(!uw_current_is_rescuer());

	cpus = uw_cpus(UW_CPUS_ALLOWED, mask, sizeof(mask));
	CHECK(cpus > 0 && uw_cpus(UW_CPUS_ALLOWED, NULL, 0) == cpus);
	CHECK(uw_cpus(UW_CPUS_POSSIBLE, mask, sizeof(mask)) >= cpus);
	CHECK(uw_cpus(UW_CPUS_ISOLATED, mask, sizeof(mask)) >= 0 && uw_cpus(77, NULL, 0) == -EINVAL);
	CHECK(uw_cpu_node(cpu) >= 0 && uw_cpu_node(4000) == -EINVAL);
	CHECK(uw_work_on_cpu(cpu, on_cpu, &number, &value) == 0 && value == 42);
	CHECK(uw_work_on_cpu(4000, on_cpu, &number, &value) == -EINVAL);
	CHECK(uw_on_each_cpu(on_each, &each) == 0 && atomic_load(&each) >= 1);
	CHECK(uw_panics() == 0);
	CHECK(strcmp(uw_version(), UW_VERSION) == 0);
	snprintf(version, sizeof(version), "%d.%d.%d", UW_VERSION_MAJOR, UW_VERSION_MINOR, UW_VERSION_PATCH);
	CHECK(strcmp(uw_version(), version) == 0);
	CHECK(uw_queue_destroy(queue) == 0);
}

/* Keeps the queue busy, so that a job behind it has not started and can be cancelled. */
static void *hold(void *arg)
{
	while (!atomic_load((atomic_int *)arg))
		usleep(100);
	return NULL;
}

static void cancelled_job(void)
{
	struct uw_queue *queue = uw_queue_create("one", UW_ORDERED, 1);
	atomic_int go = 0;
	struct uw_job *first, *second;

	CHECK(queue);
	first = uw_queue_spawn(queue, hold, &go);
	second = uw_queue_spawn(queue, same, NULL);
	CHECK(first && second);
	CHECK(uw_job_cancel(second) == 1);
	CHECK(uw_job_join(second, NULL) == -ECANCELED);
	atomic_store(&go, 1);
	CHECK(uw_job_join(first, NULL) == 0);
	CHECK(uw_queue_destroy(queue) == 0);
}

static struct uw_queue *bounded_queue;
static struct uw_bounded *bound;
static int refused_reserve;
static bool refused_spawn, tried;

/* A producer that is an item of the bounded queue. */
static void *produces(void *arg)
{
	struct uw_job *job;

	refused_spawn = uw_bounded_spawn(bound, same, arg) == NULL && errno == EDEADLK;
	refused_reserve = uw_bounded_reserve(bound);
	job = uw_bounded_try_spawn(bound, same, arg);
	tried = job != NULL;
	uw_job_detach(job);
	return arg;
}

static void bounded(void)
{
	struct uw_job *first;
	void *result;

	bounded_queue = make("bounded");
	CHECK(uw_bounded_create(bounded_queue, 0) == NULL && errno == EINVAL);
	CHECK(uw_bounded_create(bounded_queue, SIZE_MAX) == NULL && errno == EINVAL);
	bound = uw_bounded_create(bounded_queue, 1);
	CHECK(bound && uw_queue_pause(bounded_queue) == 0);
	first = uw_bounded_spawn(bound, same, &bound);
	CHECK(first);
	CHECK(uw_bounded_try_spawn(bound, same, NULL) == NULL && errno == EAGAIN && strstr(uw_error_text(), "full"));
	CHECK(uw_bounded_spawn_timeout(bound, same, NULL, 1000) == NULL && errno == ETIMEDOUT);
	CHECK(uw_bounded_try_reserve(bound) == -EAGAIN && uw_bounded_reserve_timeout(bound, 1000) == -ETIMEDOUT);
	CHECK(uw_queue_resume(bounded_queue) == 0 && uw_job_join(first, &result) == 0 && result == &bound);
	CHECK(uw_bounded_reserve(bound) == 0 && uw_bounded_release(bound) == 0);
	CHECK(uw_bounded_release(bound) == -EINVAL && strstr(uw_error_text(), "free"));
	first = uw_bounded_spawn_timeout(bound, produces, &bound, HOUR);
	CHECK(first && uw_job_join(first, NULL) == 0);
	CHECK(refused_spawn && refused_reserve == -EDEADLK && tried);
	CHECK(uw_queue_flush(bounded_queue) == 0);
	uw_bounded_destroy(bound);
	uw_bounded_destroy(NULL);
	CHECK(uw_queue_destroy(bounded_queue) == 0);
}

int main(void)
{
	bounded();
	functions();
	cancelled_job();
	puts("ok");
	return 0;
}
