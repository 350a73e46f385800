// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What the tables of docs/porting.md say of calls in C, row by row. run.sh checks that each name in
 * them is used here or in one of the guide's programs.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <uwork.h>

#include "check.h"

#define HOUR_NS (3600ull * 1000 * 1000 * 1000)

static atomic_int runs;
static sem_t inside, go_on;

static void count(struct uw_work *work)
{
	(void)work;
	atomic_fetch_add(&runs, 1);
}

static void *give(void *arg)
{
	return arg;
}

/* Runs until the main thread lets it end. */
static void hold(struct uw_work *work)
{
	(void)work;
	sem_post(&inside);
	sem_wait(&go_on);
}

static void wait_declared(void *arg)
{
	(void)arg;
	sem_wait(&go_on);
}

static void hold_declared(struct uw_work *work)
{
	(void)work;
	sem_post(&inside);
	CHECK(uw_blocking(wait_declared, NULL) == 0);
}

static void submit_again(struct uw_work *work);

static struct uw_queue *draining;
static struct uw_work first = UW_WORK_INIT(submit_again), second = UW_WORK_INIT(count);

static void submit_again(struct uw_work *work)
{
	(void)work;
	CHECK(uw_queue_work(draining, &second) == 1);
}

/* A bounded backlog. One item runs, and the bound is on what waits. */
static void backlog(void)
{
	struct uw_queue *queue = uw_queue_create("backlog", UW_UNBOUND, 1);
	struct uw_bounded *bounded = uw_bounded_create(queue, 2);
	struct uw_job *jobs[2];

	CHECK(bounded && uw_queue_pause(queue) == 0);
	for (int i = 0; i < 2; i++)
		CHECK((jobs[i] = uw_bounded_spawn(bounded, give, NULL)) != NULL);
	CHECK(!uw_bounded_try_spawn(bounded, give, NULL) && errno == EAGAIN);
	CHECK(uw_queue_resume(queue) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(uw_job_join(jobs[i], NULL) == 0);
	uw_bounded_destroy(bounded);
	CHECK(uw_queue_destroy(queue) == 0);
}

/* max_active limits what runs, not what waits; a slow class of requests holds up no other queue. */
static void limits(void)
{
	struct uw_queue *slow = uw_queue_create("slow", UW_UNBOUND, 2), *fast = uw_queue_create("fast", UW_UNBOUND, 0);
	struct uw_work held[2] = { UW_WORK_INIT(hold), UW_WORK_INIT(hold_declared) }, works[64];

	for (int i = 0; i < 2; i++)
		CHECK(uw_queue_work(slow, &held[i]) == 1);
	for (int i = 0; i < 2; i++)
		sem_wait(&inside);
	atomic_store(&runs, 0);
	for (int i = 0; i < 64; i++) {
		uw_work_init(&works[i], count);
		CHECK(uw_queue_work(slow, &works[i]) == 1);
	}
	CHECK(atomic_load(&runs) == 0);
	CHECK(uw_queue_work(fast, &second) == 1 && uw_queue_flush(fast) == 0);
	CHECK(atomic_load(&runs) == 1);
	/* At any time: a third item runs beside the two. */
	CHECK(uw_queue_set_max_active(slow, 3) == 0);
	CHECK(uw_work_flush(&works[63]) >= 0 && atomic_load(&runs) == 65);
	sem_post(&go_on);
	sem_post(&go_on);
	CHECK(uw_queue_destroy(slow) == 0 && uw_queue_destroy(fast) == 0);
}

/* What waits behind max_active shows. A per-CPU queue: the answer is that of the item's CPU. */
static void backlog_is_seen(void)
{
	struct uw_queue *queue = uw_queue_create("congested", UW_PERCPU, 1);
	struct uw_work held = UW_WORK_INIT(hold), waiting = UW_WORK_INIT(count);
	unsigned long mask[16] = { 0 };
	int cpu = 0;

	CHECK(uw_cpus(UW_CPUS_ALLOWED, mask, sizeof(mask)) > 0);
	while (!(mask[cpu / 64] >> cpu % 64 & 1))
		cpu++;
	CHECK(uw_queue_work_on(queue, cpu, &held) == 1);
	sem_wait(&inside);
	CHECK(uw_queue_work_on(queue, cpu, &waiting) == 1);
	CHECK(uw_queue_is_congested_on(queue, cpu) == 1 && uw_queue_is_congested(queue) >= 0);
	sem_post(&go_on);
	CHECK(uw_queue_destroy(queue) == 0);
}

/* flush waits for what was submitted before, drain also for what these submit. */
static void waits(void)
{
	draining = uw_queue_create("draining", UW_UNBOUND, 0);
	atomic_store(&runs, 0);
	CHECK(uw_queue_work(draining, &first) == 1 && uw_queue_drain(draining) == 0);
	CHECK(atomic_load(&runs) == 1);
	/* destroy drains first. */
	CHECK(uw_queue_work(draining, &first) == 1 && uw_queue_destroy(draining) == 0);
	CHECK(atomic_load(&runs) == 2);
}

static void cancels(void)
{
	struct uw_queue *queue = uw_queue_create("cancelled", UW_UNBOUND, 1);
	struct uw_work held = UW_WORK_INIT(hold), waiting = UW_WORK_INIT(count);
	struct uw_delayed_work later;
	struct uw_job *job;

	atomic_store(&runs, 0);
	CHECK(uw_queue_work(queue, &held) == 1);
	sem_wait(&inside);
	CHECK(uw_queue_work(queue, &waiting) == 1 && uw_work_cancel(&waiting) == 1 && uw_work_cancel(&waiting) == 0);
	/* Submissions of a pending item become one run, as those of a data source. */
	CHECK(uw_queue_work(queue, &waiting) == 1 && uw_queue_work(queue, &waiting) == 0);
	sem_post(&go_on);
	/* Waits for the run as well. */
	CHECK(uw_work_cancel_sync(&held) == 0);
	/* dispatch_sync: whichever thread runs it, it has run. */
	CHECK(uw_work_flush_helping(&waiting) >= 0 && atomic_load(&runs) == 1);

	uw_delayed_work_init(&later, count, 0, 0);
	CHECK(uw_queue_delayed_work(queue, &later, HOUR_NS) == 1 && uw_work_cancel(&later.work) == 1);
	CHECK(uw_queue_delayed_work(queue, &later, 1) == 1 && uw_delayed_work_flush(&later) >= 0);
	CHECK(uw_queue_flush(queue) == 0 && atomic_load(&runs) == 2);

	CHECK((job = uw_queue_spawn(queue, give, NULL)) != NULL);
	uw_job_detach(job);
	CHECK(uw_queue_destroy(queue) == 0);
}

static void *state_of_thread(const struct uw_thread *thread, void *arg)
{
	CHECK(thread->name);
	return arg;
}

static void *its_state(void *hooks)
{
	return uw_thread_state(hooks);
}

static void *post_state(void *hooks)
{
	void *state = its_state(hooks);

	sem_post(&inside);
	return state;
}

/* pthread_setspecific, and a pool of one thread that serves one queue. */
static void threads(struct uw_thread_hooks *hooks, int *state)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	struct uw_queue *own;
	struct uw_job *job;
	void *found;

	attrs.dedicated = true;
	attrs.nice = 5;
	CHECK((own = uw_queue_create_attrs("exclusive", &attrs)) != NULL);
	CHECK((job = uw_queue_spawn(own, post_state, hooks)) != NULL);
	/* On the worker: a join could run it here. */
	sem_wait(&inside);
	CHECK(uw_job_join(job, &found) == 0 && found == state);
	CHECK(uw_queue_destroy(own) == 0);
}

static void add_one(int cpu, void *percpu)
{
	int *block = uw_percpu_lock(percpu, cpu);

	CHECK(block);
	++*block;
	CHECK(uw_percpu_unlock(percpu, block) == 0);
}

static void add_up(int cpu, void *block, void *sum)
{
	CHECK(cpu >= 0);
	atomic_fetch_add((atomic_int *)sum, *(int *)block);
}

/* dispatch_apply, and data of each CPU. */
static void each_cpu(void)
{
	struct uw_percpu *percpu = uw_percpu_create(sizeof(int));
	atomic_int sum = 0;

	CHECK(percpu && uw_on_each_cpu(add_one, percpu) == 0);
	CHECK(uw_percpu_for_each(percpu, add_up, &sum) == 0);
	CHECK(sum >= 1 && sum <= uw_percpu_cpus(percpu));
	CHECK(uw_percpu_destroy(percpu) == 0);
}

/* dispatch_suspend keeps what waits, and pause waits for what runs as well. */
static void suspends(void)
{
	struct uw_queue *queue = uw_queue_create("suspended", UW_UNBOUND | UW_ORDERED, 0);

	atomic_store(&runs, 0);
	CHECK(uw_queue_pause(queue) == 0 && uw_queue_work(queue, &second) == 1);
	CHECK(uw_work_is_pending(&second) == 1 && atomic_load(&runs) == 0);
	CHECK(uw_queue_resume(queue) == 0 && uw_queue_destroy(queue) == 0);
	CHECK(atomic_load(&runs) == 1);
}

static int calls;

static void call(struct uw_task_work *work)
{
	(void)work;
	calls++;
}

static int no_wait(void *arg)
{
	(void)arg;
	return 0;
}

/* uv_async_send merges; each function of a task list is called once for each time it was added. */
static void loop(void)
{
	struct uw_task *here = uw_task_current();
	struct uw_task_work after[3];

	for (int i = 0; i < 3; i++) {
		uw_task_work_init(&after[i], call);
		CHECK(uw_task_work_add(here, &after[i], UW_NOTIFY_SIGNAL) == 1);
	}
	/* There are functions to call: it does not wait. */
	CHECK(uw_task_fd() >= 0 && uw_task_wait(no_wait, NULL) == -EINTR);
	CHECK(uw_task_run() == 3 && calls == 3);
	uw_task_put(here);
}

int main(void)
{
	static int state;
	struct uw_thread_hooks *hooks = uw_thread_hooks_add_lazy(state_of_thread, NULL, &state);
	struct uw_queue *urgent;

	CHECK(hooks && sem_init(&inside, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
	backlog();
	limits();
	backlog_is_seen();
	waits();
	cancels();
	threads(hooks, &state);
	each_cpu();
	suspends();
	loop();
	CHECK((urgent = uw_queue_create("urgent", UW_UNBOUND | UW_HIGHPRI, 0)) != NULL);
	CHECK(uw_queue_work(urgent, &second) == 1 && uw_queue_destroy(urgent) == 0);
	CHECK(uw_queue_work(uw_system_queue(UW_SYSTEM_DFL), &second) == 1 && uw_work_flush(&second) >= 0);
	return 0;
}
