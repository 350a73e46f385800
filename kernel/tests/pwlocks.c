// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Per-CPU batches in the style of the kernel's folio batches. Each CPU collects pages under its own
 * lock. A thread that needs all pages drains every CPU's batch, by a work item on that CPU or
 * itself. No page may be lost or counted twice.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/completion.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/pwlocks.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "contract/contract.h"

#define BATCH 15

struct batches {
	pw_lock_t lock;
	unsigned int nr;
	unsigned long pages[BATCH];
	/* The CPU of this copy, to detect an access to another CPU's data. */
	int cpu;
};

static DEFINE_PER_CPU(struct batches, batches) = { .cpu = -1 };
static DEFINE_PER_CPU(struct pw_struct, drain_work);
static struct workqueue_struct *drain_wq;

static atomic64_t added = ATOMIC64_INIT(0);
static atomic64_t drained = ATOMIC64_INIT(0);

/* The caller holds the lock. */
static void drain_batch(struct batches *batch)
{
	pw_lockdep_assert_held(&batches.lock);
	while (batch->nr > 0) {
		/* Other threads read it without the lock. */
		WRITE_ONCE(batch->nr, batch->nr - 1);
		atomic64_add((long)batch->pages[batch->nr], &drained);
	}
}

static void add_page(unsigned long page)
{
	struct batches *batch;

	atomic64_add((long)page, &added);
	pw_lock_local(&batches.lock);
	batch = this_cpu_ptr(&batches);
	CHECK(batch->cpu == smp_processor_id());
	batch->pages[batch->nr] = page;
	WRITE_ONCE(batch->nr, batch->nr + 1);
	if (batch->nr == BATCH)
		drain_batch(batch);
	pw_unlock_local(&batches.lock);
}

static void drain_cpu(int cpu)
{
	unsigned long flags;

	pw_lock_irqsave(&batches.lock, flags, cpu);
	drain_batch(per_cpu_ptr(&batches, cpu));
	pw_unlock_irqrestore(&batches.lock, flags, cpu);
}

static void drain_function(struct work_struct *work)
{
	int cpu = pw_get_cpu(work);

	/* With pwlocks=0 the function runs on that CPU. */
	CHECK(uw_percpu_mode() != 0 || (cpu == smp_processor_id() && !pw_is_cpu_remote(cpu)));
	drain_cpu(cpu);
}

/* In the style of lru_add_drain_all(). */
static void drain_all(void)
{
	static DEFINE_MUTEX(lock);
	struct cpumask has_work;
	int cpu;

	mutex_lock(&lock);
	cpumask_clear(&has_work);
	for_each_online_cpu(cpu) {
		struct pw_struct *pw = per_cpu_ptr(&drain_work, cpu);

		if (READ_ONCE(per_cpu_ptr(&batches, cpu)->nr) == 0)
			continue;
		INIT_PW(pw, drain_function, cpu);
		CHECK(pw_queue_on(cpu, drain_wq, pw));
		cpumask_set_cpu((unsigned int)cpu, &has_work);
	}
	for_each_cpu(cpu, &has_work)
		pw_flush(per_cpu_ptr(&drain_work, cpu));
	mutex_unlock(&lock);
}

static const struct cpumask *one_of_the_cpus(unsigned int number)
{
	int cpu;

	number %= num_online_cpus();
	for_each_online_cpu(cpu) {
		if (number-- == 0)
			break;
	}
	return cpumask_of(cpu);
}

static int adder(void *data)
{
	unsigned int state = (unsigned int)(uintptr_t)data, i;

	for (i = 0; i < (unsigned int)rounds * 100; i++) {
		add_page(contract_random(&state));
		/*
		 * On any allowed CPU: a thread that migrates keeps the batch of the CPU where it
		 * began.
		 */
		if (i % 64 == 0)
			set_cpus_allowed_ptr(current, one_of_the_cpus(i / 64));
		if (i % 64 == 32)
			set_cpus_allowed_ptr(current, cpu_online_mask);
	}
	return contract_end();
}

static void every_page_is_drained_once(void)
{
	struct contract_threads threads;
	int i;

	contract_start(&threads, adder, &rounds);
	for (i = 0; i < rounds; i++)
		drain_all();
	contract_stop(&threads);
	drain_all();
	CHECK(atomic64_read(&added) == atomic64_read(&drained));
	CHECK(atomic64_read(&added) > 0);
}

static void one_page_is_reached_on_every_cpu(void)
{
	int cpu, other;

	for_each_online_cpu(cpu) {
		s64 before = atomic64_read(&drained);

		set_cpus_allowed_ptr(current, cpumask_of(cpu));
		add_page(7);
		for_each_online_cpu(other)
			CHECK(pw_is_cpu_remote(other) == (uw_percpu_mode() != 0 && other != cpu));
		CHECK(per_cpu_ptr(&batches, cpu)->nr == 1);
		set_cpus_allowed_ptr(current, cpu_online_mask);
		drain_all();
		CHECK(per_cpu_ptr(&batches, cpu)->nr == 0);
		CHECK(atomic64_read(&drained) == before + 7);
	}
}

/* Between a lock and its unlock, other locks of "this" CPU belong to the same CPU. */
static DEFINE_PER_CPU(struct { pw_trylock_t lock; int count; }, inner);

static void locks_nest_on_one_cpu(void)
{
	unsigned long flags;
	int cpu, other;

	pw_lock_local_irqsave(&batches.lock, flags);
	cpu = smp_processor_id();
	/* The thread has migrated. */
	for_each_online_cpu(other) {
		set_cpus_allowed_ptr(current, cpumask_of(other));
		CHECK(smp_processor_id() == cpu);
		CHECK(this_cpu_ptr(&batches) == per_cpu_ptr(&batches, cpu));
		CHECK(pw_trylock_local(&inner.lock));
		/* The lock is held; the caller's own hold counts too. */
		CHECK(!pw_trylock(&inner.lock, cpu));
		this_cpu_ptr(&inner)->count++;
		pw_unlock_local(&inner.lock);
	}
	CHECK(per_cpu_ptr(&inner, cpu)->count == (int)num_online_cpus());
	pw_unlock_local_irqrestore(&batches.lock, flags);
	set_cpus_allowed_ptr(current, cpu_online_mask);
	for_each_online_cpu(other) {
		CHECK(pw_trylock_irqsave(&inner.lock, flags, other));
		pw_unlock_irqrestore(&inner.lock, flags, other);
		pw_lock(&inner.lock, other);
		pw_unlock(&inner.lock, other);
	}
}

/*
 * Either unlock ends the hold of the CPU. The kernel with pwlocks=0 makes no difference between
 * them.
 */
static void a_local_lock_may_be_given_up_by_its_cpu(void)
{
	int own, other;

	for_each_online_cpu(own) {
		set_cpus_allowed_ptr(current, cpumask_of(own));
		pw_lock_local(&batches.lock);
		CHECK(pw_trylock_local(&inner.lock));
		pw_unlock(&inner.lock, own);
		for_each_online_cpu(other) {
			set_cpus_allowed_ptr(current, cpumask_of(other));
			CHECK(smp_processor_id() == own);
			/*
			 * A lock of another CPU, or one taken by CPU number, does not fix the
			 * caller's CPU.
			 */
			pw_lock(&inner.lock, other);
			pw_unlock(&inner.lock, other);
			CHECK(smp_processor_id() == own);
		}
		pw_unlock(&batches.lock, own);
		for_each_online_cpu(other) {
			set_cpus_allowed_ptr(current, cpumask_of(other));
			CHECK(smp_processor_id() == other);
		}
	}
	set_cpus_allowed_ptr(current, cpu_online_mask);
}

/* Runs in a child, because it ends the process. */
static void try_no_cpu(void)
{
	pw_trylock(&inner.lock, (int)uw_kernel_nr_cpus());
}

static void unlock_what_is_not_local(void)
{
	pw_lock_local(&batches.lock);
	pw_lock(&inner.lock, smp_processor_id());
	pw_unlock_local(&inner.lock);
}

/* The sanitizers' runtimes have locks that they do not hold over a fork (check.h). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_FORK_WITH_THREADS 0
#else
#define CAN_FORK_WITH_THREADS 1
#endif

static void ends(void (*what)(void))
{
	int status = 0;
	pid_t child;

	if (!CAN_FORK_WITH_THREADS)
		return;
	child = fork();
	if (child == 0) {
		what();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void note_run(struct work_struct *work)
{
	int cpu = pw_get_cpu(work);

	pw_lock(&inner.lock, cpu);
	per_cpu_ptr(&inner, cpu)->count++;
	pw_unlock(&inner.lock, cpu);
}

/* The item is not lost, and is for its CPU's data whichever CPU runs it. */
static void work_on_an_unbound_queue_is_for_its_cpu(void)
{
	struct pw_struct pw;
	int cpu, before;

	for_each_online_cpu(cpu) {
		before = per_cpu_ptr(&inner, cpu)->count;
		INIT_PW(&pw, note_run, cpu);
		CHECK(pw_queue_on(cpu, system_unbound_wq, &pw));
		pw_flush(&pw);
		CHECK(per_cpu_ptr(&inner, cpu)->count == before + 1);
	}
}

static void locks_in_allocated_data(void)
{
	struct batches __percpu *own = alloc_percpu(struct batches);
	int cpu, i;

	BUG_ON(!own);
	for_each_possible_cpu(cpu) {
		pw_lock_init(&per_cpu_ptr(own, cpu)->lock);
		pw_trylock_init(&per_cpu_ptr(own, cpu)->lock);
	}
	for (i = 0; i < 1000; i++) {
		pw_lock_local(&own->lock);
		this_cpu_ptr(own)->nr++;
		pw_unlock_local(&own->lock);
	}
	for_each_possible_cpu(cpu)
		i -= (int)per_cpu_ptr(own, cpu)->nr;
	CHECK(i == 0);
	free_percpu(own);
}

static atomic_t runs = ATOMIC_INIT(0);

static void count_run(struct work_struct *work)
{
	(void)work;
	atomic_inc(&runs);
}

static void a_disabled_item_is_refused(void)
{
	struct pw_struct pw;
	int cpu = (int)cpumask_first(cpu_online_mask);

	INIT_PW(&pw, count_run, cpu);
	atomic_set(&runs, 0);
	disable_work(&pw.work);
	CHECK(!pw_queue_on(cpu, drain_wq, &pw));
	pw_flush(&pw);
	CHECK(atomic_read(&runs) == 0);
	CHECK(enable_work(&pw.work));
	CHECK(pw_queue_on(cpu, drain_wq, &pw));
	pw_flush(&pw);
	CHECK(atomic_read(&runs) == 1);
}

static void free_it(struct work_struct *work)
{
	kfree(container_of(work, struct pw_struct, work));
	atomic_inc(&runs);
}

static void a_function_may_free_its_item(void)
{
	int cpu = (int)cpumask_first(cpu_online_mask), i;

	atomic_set(&runs, 0);
	for (i = 0; i < 100; i++) {
		struct pw_struct *pw = kmalloc(sizeof(*pw), GFP_KERNEL);

		BUG_ON(!pw);
		INIT_PW(pw, free_it, cpu);
		CHECK(pw_queue_on(cpu, drain_wq, pw));
	}
	flush_workqueue(drain_wq);
	CHECK(atomic_read(&runs) == 100);
}

/* An item whose function has been entered and then waits. */
static struct pw_struct slow;
static DECLARE_COMPLETION(slow_entered);
static DECLARE_COMPLETION(slow_go);
static DECLARE_COMPLETION(flusher_began);
static int slow_done, flushed;

static void slow_function(struct work_struct *work)
{
	(void)work;
	complete(&slow_entered);
	wait_for_completion(&slow_go);
	WRITE_ONCE(slow_done, 1);
}

static int until_stopped(void)
{
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

static bool sleeps(pid_t thread)
{
	char path[64], text[256];
	const char *after_name;
	size_t length;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "r");
	if (!file)
		return false;
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = '\0';
	after_name = strrchr(text, ')');
	return after_name && after_name[1] == ' ' && after_name[2] == 'S';
}

static int queue_slow(void *data)
{
	(void)data;
	CHECK(pw_queue_on(slow.cpu, drain_wq, &slow));
	return until_stopped();
}

static int flush_slow(void *data)
{
	(void)data;
	complete(&flusher_began);
	CHECK(pw_flush(&slow));
	CHECK(READ_ONCE(slow_done) == 1);
	WRITE_ONCE(flushed, 1);
	return until_stopped();
}

static void a_flush_waits_for_another_thread_s_call(void)
{
	struct task_struct *queuer, *flusher;
	int looks = 0;

	INIT_PW(&slow, slow_function, (int)cpumask_first(cpu_online_mask));
	queuer = kthread_run(queue_slow, NULL, "queuer");
	wait_for_completion(&slow_entered);
	flusher = kthread_run(flush_slow, NULL, "flusher");
	wait_for_completion(&flusher_began);
	/* The flush sleeps, or has returned with an error. */
	while (looks < 20 && !READ_ONCE(flushed)) {
		looks = sleeps(flusher->pid) ? looks + 1 : 0;
		cond_resched();
	}
	CHECK(!READ_ONCE(flushed));
	complete(&slow_go);
	while (!READ_ONCE(flushed))
		cond_resched();
	kthread_stop(flusher);
	kthread_stop(queuer);
}

/*
 * On a thread of its own, because the affinity of the process's first thread limits the whole
 * process.
 */
static int pinned(void *data)
{
	(void)data;
	one_page_is_reached_on_every_cpu();
	locks_nest_on_one_cpu();
	a_local_lock_may_be_given_up_by_its_cpu();
	return contract_end();
}

static void pwlocks(void)
{
	struct task_struct *task;
	int cpu;

	drain_wq = alloc_workqueue("pwlocks-drain", WQ_PERCPU, 0);
	BUG_ON(!drain_wq);
	for_each_possible_cpu(cpu) {
		CHECK(per_cpu_ptr(&batches, cpu)->cpu == -1);
		per_cpu_ptr(&batches, cpu)->cpu = cpu;
		pw_lock_init(&per_cpu_ptr(&batches, cpu)->lock);
	}
	task = kthread_run(pinned, NULL, "contract/pinned");
	BUG_ON(IS_ERR(task));
	wait_for_completion(&contract_ended);
	kthread_stop(task);
	every_page_is_drained_once();
	ends(try_no_cpu);
	ends(unlock_what_is_not_local);
	work_on_an_unbound_queue_is_for_its_cpu();
	locks_in_allocated_data();
	a_disabled_item_is_refused();
	a_function_may_free_its_item();
	a_flush_waits_for_another_thread_s_call();
	destroy_workqueue(drain_wq);
}

CONTRACT(pwlocks);
