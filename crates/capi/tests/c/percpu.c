// SPDX-License-Identifier: MIT OR Apache-2.0
/* Per-CPU data, work, caches, batches and counters, in the mode of the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include <uwork.h>

#include "check.h"

#define THREADS 4
#define ROUNDS 20000

static int mode;

/* The CPUs that the process may use. The other CPUs have blocks too. */
static cpu_set_t allowed;

static bool is_allowed(int cpu)
{
	return CPU_ISSET((size_t)cpu, &allowed);
}

static int first_cpu(void)
{
	int cpu = 0;

	while (!is_allowed(cpu))
		cpu++;
	return cpu;
}

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static void be_free(void)
{
	CHECK(sched_setaffinity(0, sizeof(allowed), &allowed) == 0);
}

static void choosing(void)
{
	char reason[200];
	const char *asked = getenv("UWORK_PWLOCKS");
	struct uw_setup setup = UW_SETUP_INIT;

	/* The environment overrides the program's choice. */
	setup.percpu_mode = UW_PERCPU_REMOTE;
	CHECK(uw_setup(&setup) == 0);
	mode = uw_percpu_mode();
	CHECK(mode >= 0 && mode <= 2);
	CHECK(uw_percpu_reason(reason, sizeof(reason)) > 0 && reason[0]);
	CHECK(asked && *asked ? strstr(reason, "UWORK_PWLOCKS") != NULL : mode == 1);
	CHECK(uw_setup(&setup) == -EEXIST);
	printf("mode %d: %s\n", mode, reason);
}

struct numbers {
	struct uw_percpu *percpu;
	struct uw_percpu_counter *counter;
};

/* Adds on its current CPU, and sometimes on another one. */
static void *adder(void *arg)
{
	const struct numbers *numbers = arg;
	int cpus = uw_percpu_cpus(numbers->percpu), round;

	for (round = 0; round < ROUNDS; round++) {
		long *block;

		if (round % 200 == 0)
			block = uw_percpu_lock(numbers->percpu, round / 200 % cpus);
		else
			block = uw_percpu_lock_local(numbers->percpu);
		CHECK(block);
		*block += 1;
		CHECK(uw_percpu_unlock(numbers->percpu, block) == 0);
		uw_percpu_counter_add(numbers->counter, 2);
		if (round % 100 == 50)
			stay_on(round % 200 == 50 ? first_cpu() : sched_getcpu());
		if (round % 100 == 75)
			be_free();
	}
	return NULL;
}

static void sum_up(int cpu, void *block, void *arg)
{
	CHECK(cpu >= 0);
	atomic_fetch_add((atomic_long *)arg, *(long *)block);
}

static void exact_counts(void)
{
	struct numbers numbers = { uw_percpu_create(sizeof(long)), uw_percpu_counter_create() };
	pthread_t threads[THREADS];
	atomic_long sum = 0;
	int i;

	CHECK(numbers.percpu && numbers.counter);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, adder, &numbers) == 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(uw_percpu_for_each(numbers.percpu, sum_up, &sum) == 0);
	CHECK(atomic_load(&sum) == THREADS * ROUNDS);
	CHECK(uw_percpu_counter_sum(numbers.counter) == 2 * THREADS * ROUNDS);
	CHECK(uw_percpu_destroy(numbers.percpu) == 0 && uw_percpu_counter_destroy(numbers.counter) == 0);
}

static void add_ten(int cpu, void *block, void *arg)
{
	(void)arg;
	/* In mode 0 the function runs on that CPU. */
	CHECK(mode != 0 || sched_getcpu() == cpu);
	*(int *)block += 10;
}

static void recursion(void)
{
	struct uw_percpu *percpu = uw_percpu_create(1000);
	int cpu = first_cpu(), *block;

	CHECK(percpu);
	stay_on(cpu);
	block = uw_percpu_lock_local(percpu);
	CHECK(block && *block == 0 && uw_percpu_cpu_of(percpu, block) == cpu);
	/* Aligned like a block, but inside of one. In the debug mode this call ends the process. */
	if (!getenv("UWORK_DEBUG")) {
		CHECK(uw_percpu_cpu_of(percpu, (char *)block + 128) == -EINVAL);
		CHECK(uw_percpu_unlock(percpu, (char *)block + 128) == -EINVAL);
	}
	CHECK((uintptr_t)block % 16 == 0);
	CHECK(uw_percpu_lock_local(percpu) == NULL && errno == EDEADLK);
	CHECK(uw_percpu_trylock_local(percpu) == NULL && errno == EBUSY);
	CHECK(uw_percpu_lock(percpu, cpu) == NULL && errno == EDEADLK);
	CHECK(uw_percpu_with(percpu, cpu, add_ten, NULL) == -EDEADLK);
	CHECK(*block == 0);
	CHECK(uw_percpu_destroy(percpu) == -EDEADLK);
	CHECK(uw_percpu_unlock(percpu, block) == 0);
	CHECK(uw_percpu_with(percpu, cpu, add_ten, NULL) == 0);
	block = uw_percpu_trylock(percpu, cpu);
	CHECK(block && *block == 10);
	CHECK(uw_percpu_unlock(percpu, block) == 0);
	be_free();
	CHECK(uw_percpu_lock(percpu, uw_percpu_cpus(percpu)) == NULL && errno == EINVAL);
	CHECK(uw_percpu_create(0) == NULL && errno == EINVAL);
	CHECK(uw_percpu_create(SIZE_MAX - 4) == NULL && errno == ENOMEM);
	CHECK(uw_percpu_destroy(percpu) == 0);
}

static void *try_it(void *percpu)
{
	CHECK(uw_percpu_trylock(percpu, first_cpu()) == NULL && errno == EBUSY);
	return NULL;
}

static void others_are_kept_out(void)
{
	struct uw_percpu *percpu = uw_percpu_create(8);
	void *block = uw_percpu_lock(percpu, first_cpu());
	pthread_t thread;

	CHECK(block && pthread_create(&thread, NULL, try_it, percpu) == 0);
	pthread_join(thread, NULL);
	CHECK(uw_percpu_unlock(percpu, block) == 0 && uw_percpu_destroy(percpu) == 0);
}

struct drain {
	struct uw_percpu_work work;
	atomic_int runs;
};

static void drain(struct uw_work *work)
{
	struct uw_percpu_work *percpu_work = uw_to_percpu_work(work);
	struct drain *drain = UW_CONTAINER_OF(percpu_work, struct drain, work);

	CHECK(mode != 0 || !uw_percpu_is_remote(percpu_work->cpu));
	CHECK(uw_percpu_is_remote(percpu_work->cpu) == (sched_getcpu() != percpu_work->cpu));
	atomic_fetch_add(&drain->runs, 1);
}

static void work(void)
{
	struct uw_queue *queue = uw_queue_create("percpu-work", UW_PERCPU, 0);
	struct uw_queue *unbound = uw_queue_create("unbound-work", UW_UNBOUND, 0);
	struct uw_percpu_work variable = UW_PERCPU_WORK_INIT(drain, 1);
	struct drain item;
	int cpu = 0, runs = 0;

	CHECK(queue && unbound && variable.cpu == 1);
	/* Bound to one CPU, so that the current CPU is known. */
	stay_on(first_cpu());
	atomic_init(&item.runs, 0);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!is_allowed(cpu))
			continue;
		uw_percpu_work_init(&item.work, drain, cpu);
		CHECK(uw_percpu_queue_on(queue, cpu + 1, &item.work) == -EINVAL);
		CHECK(uw_percpu_queue_on(queue, cpu, &item.work) == 1);
		CHECK(mode == 0 || atomic_load(&item.runs) == runs + 1);
		CHECK(uw_percpu_flush(&item.work) >= 0);
		CHECK(atomic_load(&item.runs) == ++runs);
		CHECK(uw_work_disable(&item.work.work) == 0);
		CHECK(uw_percpu_queue_on(queue, cpu, &item.work) == -EPERM);
		CHECK(atomic_load(&item.runs) == runs);
		CHECK(uw_work_enable(&item.work.work) >= 0);
		CHECK(uw_percpu_queue_on(queue, cpu, &item.work) == 1);
		CHECK(uw_percpu_flush(&item.work) >= 0);
		CHECK(atomic_load(&item.runs) == ++runs);
	}
	uw_percpu_work_init(&item.work, drain, first_cpu());
	/* In mode 0 its function could run on any CPU, so it is refused. */
	CHECK(uw_percpu_queue_on(unbound, first_cpu(), &item.work) == (mode == 0 ? -EINVAL : 1));
	runs += mode != 0;
	CHECK(atomic_load(&item.runs) == runs);
	uw_percpu_work_init(&item.work, drain, CPU_SETSIZE);
	CHECK(uw_percpu_queue_on(queue, CPU_SETSIZE, &item.work) == -EINVAL);
	CHECK(atomic_load(&item.runs) == runs);
	be_free();
	CHECK(uw_queue_destroy(queue) == 0 && uw_queue_destroy(unbound) == 0);
}

#define OBJECTS 1000

static void *allocator(void *cache)
{
	char *objects[OBJECTS];
	int round, i;

	for (round = 0; round < 20; round++) {
		for (i = 0; i < OBJECTS; i++) {
			objects[i] = uw_percpu_cache_alloc(cache);
			CHECK(objects[i] && (uintptr_t)objects[i] % 64 == 0);
			memset(objects[i], i, 100);
		}
		for (i = 0; i < OBJECTS; i++) {
			CHECK(objects[i][0] == (char)i && objects[i][99] == (char)i);
			uw_percpu_cache_free(cache, objects[i]);
		}
	}
	return NULL;
}

static void cache(void)
{
	struct uw_percpu_cache *cache = uw_percpu_cache_create("objects", 100, 64);
	struct uw_percpu_cache_stats stats;
	pthread_t threads[THREADS];
	void *object;
	int i;

	CHECK(cache);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, allocator, cache) == 0);
	/* Meanwhile other threads take free objects from the magazines. */
	for (i = 0; i < 50; i++)
		CHECK(uw_percpu_cache_flush_all(cache) >= 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	object = uw_percpu_cache_alloc(cache);
	CHECK(uw_percpu_cache_stats(cache, &stats) == 0);
	CHECK(stats.out == 1 && stats.bytes >= stats.objects * 100 && stats.in_magazines < stats.objects);
	CHECK(uw_percpu_cache_destroy(cache) == -EBUSY && strstr(uw_error_text(), "1 object"));
	uw_percpu_cache_free(cache, object);
	uw_percpu_cache_free(cache, NULL);
	CHECK(uw_percpu_cache_shrink(cache) > 0);
	CHECK(uw_percpu_cache_stats(cache, &stats) == 0 && stats.bytes == 0 && stats.out == 0);
	CHECK(uw_percpu_cache_destroy(cache) == 0);
	CHECK(uw_percpu_cache_create("odd", 100, 3) == NULL && errno == EINVAL);
	CHECK(uw_percpu_cache_create("empty", 0, 0) == NULL && errno == EINVAL);
	CHECK(uw_percpu_cache_create("larger", SIZE_MAX, 0) == NULL && errno == ENOMEM);
	CHECK(uw_percpu_cache_create("coarse", 8, SIZE_MAX / 4 + 1) == NULL && errno == ENOMEM);
	cache = uw_percpu_cache_create("huge", SIZE_MAX / 8, 0);
	CHECK(cache && uw_percpu_cache_alloc(cache) == NULL && errno == ENOMEM);
	CHECK(uw_percpu_cache_destroy(cache) == 0);
}

static void sink(void *const *items, size_t count, void *arg)
{
	size_t i;

	for (i = 0; i < count; i++)
		atomic_fetch_add((atomic_long *)arg, (long)(intptr_t)items[i]);
}

static void *collector(void *batch)
{
	long item;

	for (item = 1; item <= ROUNDS; item++)
		CHECK(uw_percpu_batch_add(batch, (void *)(intptr_t)item) == 0);
	return NULL;
}

static void batch(void)
{
	atomic_long sum = 0;
	struct uw_percpu_batch *batch = uw_percpu_batch_create(16, sink, &sum);
	pthread_t threads[THREADS];
	long all = (long)THREADS * ROUNDS * (ROUNDS + 1) / 2;
	int i;

	CHECK(batch);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, collector, batch) == 0);
	for (i = 0; i < 50; i++)
		CHECK(uw_percpu_batch_drain_all(batch) >= 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(uw_percpu_batch_drain_all(batch) >= 0 && atomic_load(&sum) == all);
	stay_on(first_cpu());
	CHECK(uw_percpu_batch_add(batch, (void *)7) == 0 && uw_percpu_batch_add(batch, (void *)8) == 0);
	be_free();
	CHECK(atomic_load(&sum) == all);
	CHECK(uw_percpu_batch_drain_all(batch) == 2 && atomic_load(&sum) == all + 15);
	CHECK(uw_percpu_batch_add(batch, (void *)1) == 0 && uw_percpu_batch_destroy(batch) == 0);
	CHECK(atomic_load(&sum) == all + 16);
	CHECK(uw_percpu_batch_create(0, sink, NULL) == NULL && errno == EINVAL);
}

static struct uw_percpu_batch *ends_itself;

static void end_itself(void *const *items, size_t count, void *arg)
{
	CHECK(count == 2 && items[0] == arg && items[1] == NULL);
	CHECK(uw_percpu_batch_drain_all(ends_itself) == -EDEADLK);
	CHECK(uw_percpu_batch_destroy(ends_itself) == -EDEADLK);
	*(bool *)arg = true;
}

/* A batch cannot be destroyed in its own sink. */
static void batch_in_its_sink(void)
{
	bool was_called = false;

	ends_itself = uw_percpu_batch_create(2, end_itself, &was_called);
	CHECK(ends_itself);
	stay_on(first_cpu());
	CHECK(uw_percpu_batch_add(ends_itself, &was_called) == 0 && uw_percpu_batch_add(ends_itself, NULL) == 0);
	be_free();
	CHECK(was_called && uw_percpu_batch_drain_all(ends_itself) == 0);
	CHECK(uw_percpu_batch_destroy(ends_itself) == 0);
}

static void *everything(void *arg)
{
	choosing();
	exact_counts();
	recursion();
	others_are_kept_out();
	work();
	cache();
	batch();
	batch_in_its_sink();
	return arg;
}

int main(void)
{
	pthread_t thread;

	CHECK(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	/*
	 * On a thread of its own, because the affinity of the process's first thread limits the
	 * whole process.
	 */
	CHECK(pthread_create(&thread, NULL, everything, NULL) == 0);
	pthread_join(thread, NULL);
	puts("ok");
	return 0;
}
