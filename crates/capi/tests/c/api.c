// SPDX-License-Identifier: MIT OR Apache-2.0
/* Every function of uwork.h does what it says. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uwork.h>

#include "check.h"

static const uint64_t MS = 1000 * 1000;
static const uint64_t HOUR = 3600ull * 1000 * 1000 * 1000;

struct item {
	struct uw_work work;
	struct uw_delayed_work delayed;
	struct uw_rcu_work rcu;
	atomic_int runs;
};

static void run(struct uw_work *work)
{
	struct item *item = UW_CONTAINER_OF(work, struct item, work);
	char text[32];

	CHECK(uw_current_work() == work);
	CHECK(uw_set_worker_desc("counting") == 1);
	CHECK(uw_work_description(work, text, sizeof(text)) == 8 && strcmp(text, "counting") == 0);
	CHECK(uw_work_busy(work) & UW_BUSY_RUNNING);
	atomic_fetch_add(&item->runs, 1);
}

static void run_delayed(struct uw_work *work)
{
	atomic_fetch_add(&UW_CONTAINER_OF(uw_to_delayed_work(work), struct item, delayed)->runs, 1);
}

static void run_rcu(struct uw_work *work)
{
	atomic_fetch_add(&UW_CONTAINER_OF(uw_to_rcu_work(work), struct item, rcu)->runs, 1);
}

static void init(struct item *item)
{
	uw_work_init(&item->work, run);
	uw_delayed_work_init(&item->delayed, run_delayed, 0, 0);
	uw_rcu_work_init(&item->rcu, run_rcu);
	atomic_store(&item->runs, 0);
}

static struct uw_queue *make(const char *name)
{
	struct uw_queue *queue = uw_queue_create(name, UW_UNBOUND | UW_SYSFS, 0);

	CHECK(queue);
	return queue;
}

static void items(void)
{
	struct uw_queue *queue = make("items");
	char address[32], *text;
	struct item item;

	init(&item);
	CHECK(uw_queue_work(queue, &item.work) == 1);
	uw_work_flush(&item.work);
	CHECK(uw_queue_work_on(queue, 0, &item.work) == 1);
	uw_work_flush_helping(&item.work);
	CHECK(uw_queue_work_node(queue, 0, &item.work) == 1);
	CHECK(uw_queue_flush(queue) == 0);
	CHECK(atomic_load(&item.runs) == 3);
	CHECK(uw_work_is_pending(&item.work) == 0 && uw_work_busy(&item.work) == 0);
	CHECK(uw_work_flush(&item.work) == 0);
	CHECK(uw_work_cancel(&item.work) == 0 && uw_work_cancel_sync(&item.work) == 0);

	CHECK(uw_work_disable(&item.work) == 0 && uw_work_disable_sync(&item.work) == 0);
	CHECK(uw_queue_work(queue, &item.work) == -EPERM);
	CHECK(uw_enable_and_queue_work(queue, &item.work) == 0);
	CHECK(uw_enable_and_queue_work(queue, &item.work) == 1);
	uw_work_flush(&item.work);
	CHECK(atomic_load(&item.runs) == 4);
	CHECK(uw_current_work() == NULL && uw_set_worker_desc("outside") == 0);

	CHECK(uw_queue_delayed_work(queue, &item.delayed, HOUR) == 1);
	CHECK(uw_queue_delayed_work(queue, &item.delayed, 0) == 0);
	CHECK(uw_mod_delayed_work(queue, &item.delayed, HOUR) == 0);
	CHECK(uw_mod_delayed_work_on(queue, 0, &item.delayed, HOUR) == 0);
	CHECK(uw_work_is_pending(&item.delayed.work) == 1);
	/* In the debug mode, too, what is shown is this item. */
	text = uw_dump();
	snprintf(address, sizeof(address), "%#" PRIxPTR, (uintptr_t)&item.delayed);
	CHECK(text && strstr(text, "run_delayed") && strstr(text, address));
	uw_string_free(text);
	CHECK(uw_delayed_work_flush(&item.delayed) == 1);
	CHECK(uw_queue_delayed_work_on(queue, 0, &item.delayed, HOUR) == 1);
	CHECK(uw_work_cancel(&item.delayed.work) == 1);
	CHECK(uw_mod_delayed_work(queue, &item.delayed, MS) == 1);
	CHECK(uw_delayed_work_flush(&item.delayed) >= 0);
	CHECK(atomic_load(&item.runs) == 6);

	CHECK(uw_rcu_read_lock() == 0 && uw_rcu_is_read_locked());
	CHECK(uw_queue_rcu_work(queue, &item.rcu) == 1);
	CHECK(uw_queue_rcu_work(queue, &item.rcu) == 0);
	CHECK(uw_rcu_work_flush(&item.rcu) == 0);
	CHECK(uw_rcu_read_unlock() == 0 && !uw_rcu_is_read_locked());
	CHECK(uw_rcu_work_flush(&item.rcu) >= 0);
	CHECK(uw_queue_flush(queue) == 0);
	CHECK(atomic_load(&item.runs) == 7);
	CHECK(uw_queue_is_idle(queue) >= 0);
	CHECK(uw_queue_drain(queue) == 0);
	CHECK(uw_queue_flush_timeout(queue, MS) == 0);
	CHECK(uw_queue_destroy(queue) == 0);
}

static void static_runs(struct uw_work *work);
static atomic_int static_count;
static struct uw_work static_work = UW_WORK_INIT(static_runs);
static struct uw_delayed_work static_delayed = UW_DELAYED_WORK_INIT(static_runs);
static struct uw_delayed_work static_deferrable = UW_DEFERRABLE_WORK_INIT(static_runs);
static struct uw_rcu_work static_rcu = UW_RCU_WORK_INIT(static_runs);

static void static_runs(struct uw_work *work)
{
	CHECK(work->func == static_runs);
	atomic_fetch_add(&static_count, 1);
}

static void initialisers(void)
{
	struct uw_queue *queue = uw_system_queue(UW_SYSTEM_DFL);

	CHECK(queue);
	CHECK(uw_queue_work(queue, &static_work) == 1);
	CHECK(uw_queue_delayed_work(queue, &static_delayed, HOUR) == 1);
	CHECK(uw_queue_delayed_work(queue, &static_deferrable, HOUR) == 1);
	CHECK(uw_queue_rcu_work(queue, &static_rcu) == 1);
	CHECK(uw_delayed_work_flush(&static_delayed) == 1);
	CHECK(uw_delayed_work_flush(&static_deferrable) == 1);
	uw_rcu_work_flush(&static_rcu);
	uw_work_flush(&static_rcu.work);
	uw_work_flush(&static_work);
	CHECK(atomic_load(&static_count) == 4);
}

#define SHARED 200

static atomic_int shared_runs, shared_queued;
static struct uw_work shared[SHARED];
static pthread_barrier_t start;

static void count_shared(struct uw_work *work)
{
	(void)work;
	atomic_fetch_add(&shared_runs, 1);
}

static void *use_shared(void *queue)
{
	int i;

	pthread_barrier_wait(&start);
	for (i = 0; i < SHARED; i++) {
		int queued = uw_queue_work(queue, &shared[i]);

		CHECK(queued >= 0);
		atomic_fetch_add(&shared_queued, queued);
	}
	return NULL;
}

/* Several threads may be the first to use an item that an initialiser has made. */
static void used_first_by_several(void)
{
	struct uw_queue *queue = make("shared");
	pthread_t threads[3];
	size_t i;

	for (i = 0; i < SHARED; i++)
		shared[i] = (struct uw_work)UW_WORK_INIT(count_shared);
	CHECK(pthread_barrier_init(&start, NULL, 3) == 0);
	for (i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, use_shared, queue) == 0);
	for (i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(uw_queue_flush(queue) == 0);
	CHECK(atomic_load(&shared_runs) == atomic_load(&shared_queued) && atomic_load(&shared_runs) >= SHARED);
	CHECK(uw_queue_destroy(queue) == 0);
}

static void attributes(void)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	unsigned long mask[16] = { 1 };
	struct uw_queue *queue;
	char text[64], *list;

	attrs.flags = UW_UNBOUND | UW_SYSFS;
	attrs.max_active = 7;
	attrs.nice = 5;
	attrs.scope = UW_SCOPE_NUMA;
	attrs.strict = true;
	attrs.cpumask = mask;
	attrs.cpumask_bytes = sizeof(mask);
	queue = uw_queue_create_attrs("tuned", &attrs);
	CHECK(queue);
	CHECK(uw_queue_create("tuned", 0, 0) == NULL && errno == EEXIST);
	CHECK(uw_queue_name(queue, text, sizeof(text)) == 5 && strcmp(text, "tuned") == 0);
	CHECK(uw_queue_name(queue, text, 3) == 5 && strcmp(text, "tu") == 0);
	CHECK(uw_queue_flags(queue) == (UW_UNBOUND | UW_SYSFS));
	CHECK(uw_queue_max_active(queue) == 7);
	CHECK(uw_queue_set_max_active(queue, 9) == 0 && uw_queue_max_active(queue) == 9);
	CHECK(uw_queue_set_max_active(queue, 5000) == -EINVAL && strstr(uw_error_text(), "2048"));
	CHECK(uw_queue_set_min_active(queue, 2) == 0 && uw_queue_min_active(queue) == 2);
	CHECK(uw_queue_scope(queue, text, sizeof(text)) > 0 && strcmp(text, "numa") == 0);
	CHECK(uw_queue_set_scope(queue, UW_SCOPE_SYSTEM) == 0);
	CHECK(uw_queue_scope(queue, text, sizeof(text)) > 0 && strcmp(text, "system") == 0);
	CHECK(uw_queue_set_scope(queue, 99) == -EINVAL);
	CHECK(uw_queue_set_strict(queue, false) == 0);
	CHECK(uw_queue_set_nice(queue, 6) == 0 && uw_queue_set_nice(queue, 40) == -EINVAL);
	mask[0] = 0;
	CHECK(uw_queue_cpumask(queue, mask, sizeof(mask)) == 1 && mask[0] == 1);
	CHECK(uw_queue_set_cpumask(queue, mask, sizeof(mask)) == 0);
	CHECK(uw_queue_set_cpumask(queue, mask, 3) == -EINVAL);
	CHECK(uw_queue_is_congested(queue) == 0 && uw_queue_is_congested_on(queue, 0) == 0);
	CHECK(uw_queue_check_cpu(queue, 0) == 0 && uw_queue_check_cpu(queue, 4000) == -EINVAL);

	CHECK(uw_sysfs_set("devices/tuned/max_active", "11\n") == 0 && uw_queue_max_active(queue) == 11);
	CHECK(uw_sysfs_get("devices/tuned/max_active", text, sizeof(text)) == 2 && strcmp(text, "11") == 0);
	CHECK(uw_sysfs_set("devices/tuned/max_active", "many") == -EINVAL);
	CHECK(uw_sysfs_get("devices/nobody/max_active", text, sizeof(text)) == -ENOENT);
	CHECK(uw_sysfs_set("devices/tuned/per_cpu", "1") == -EACCES);
	CHECK(uw_sysfs_get("devices", text, sizeof(text)) == -EISDIR);
	CHECK(uw_sysfs_list("devices/tuned", &list) == 0 && strstr(list, "affinity_scope\n"));
	uw_string_free(list);
	CHECK(uw_sysfs_list("", &list) == 0 && strstr(list, "devices/\n"));
	uw_string_free(list);

	list = uw_dump();
	CHECK(list && strstr(list, "tuned"));
	uw_string_free(list);
	list = uw_queue_dump(queue);
	CHECK(list && strstr(list, "tuned"));
	uw_string_free(list);
	list = uw_dump_queues(UW_FREEZABLE);
	CHECK(list && !strstr(list, "tuned"));
	uw_string_free(list);
	CHECK(uw_queue_destroy(queue) == 0);
}

static void dedicated(void)
{
	struct uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;
	struct uw_queue *queue;
	struct item item;

	attrs.dedicated = true;
	queue = uw_queue_create_attrs("journal", &attrs);
	CHECK(queue && (uw_queue_flags(queue) & (int)UW_ORDERED));
	init(&item);
	CHECK(uw_queue_work(queue, &item.work) == 1 && uw_work_flush(&item.work) >= 0);
	CHECK(atomic_load(&item.runs) == 1);
	CHECK(uw_queue_destroy(queue) == 0);
	attrs.flags = UW_PERCPU;
	CHECK(uw_queue_create_attrs("journal", &attrs) == NULL && errno == EINVAL);
}

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

static void functions(void)
{
	struct uw_queue *queue = make("functions");
	unsigned long mask[16];
	atomic_int each = 0;
	bool waited = false;
	struct uw_job *job;
	int number = 41, cpus;
	void *result;
	long value;

	job = uw_queue_spawn(queue, same, &number);
	CHECK(job && uw_job_is_finished(job) >= 0);
	CHECK(uw_job_join(job, &result) == 0 && result == &number);
	job = uw_queue_spawn(queue, same, &number);
	CHECK(job);
	uw_job_detach(job);
	CHECK(uw_queue_flush(queue) == 0);
	CHECK(uw_freeze_begin() == 0 && uw_freeze_begin() == -EALREADY);
	CHECK(uw_freeze_is_busy() >= 0 && uw_thaw() == 0 && uw_thaw() == -EINVAL);
	CHECK(uw_blocking(waits, &waited) == 0 && waited);
	CHECK(!uw_current_is_rescuer());

	cpus = uw_cpus(UW_CPUS_ALLOWED, mask, sizeof(mask));
	CHECK(cpus > 0 && uw_cpus(UW_CPUS_ALLOWED, NULL, 0) == cpus);
	CHECK(uw_cpus(UW_CPUS_POSSIBLE, mask, sizeof(mask)) >= cpus);
	CHECK(uw_cpus(UW_CPUS_ISOLATED, mask, sizeof(mask)) >= 0 && uw_cpus(77, NULL, 0) == -EINVAL);
	CHECK(uw_cpu_node(0) >= 0 && uw_cpu_node(4000) == -EINVAL);
	CHECK(uw_work_on_cpu(0, on_cpu, &number, &value) == 0 && value == 42);
	CHECK(uw_work_on_cpu(4000, on_cpu, &number, &value) == -EINVAL);
	CHECK(uw_on_each_cpu(on_each, &each) == 0 && atomic_load(&each) >= 1);
	CHECK(uw_panics() == 0);
	CHECK(strcmp(uw_version(), UW_VERSION) == 0);
	CHECK(uw_queue_destroy(queue) == 0);
}

/* A job that has not started can be taken back. */
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

/* A child may use everything at once; the parent does not notice. */
static void forked(void)
{
	struct uw_queue *queue = make("forked");
	struct item item;
	int status;
	pid_t child;

	init(&item);
	CHECK(uw_queue_delayed_work(queue, &item.delayed, HOUR) == 1);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		if (uw_work_is_pending(&item.delayed.work) != 0 || uw_queue_work(queue, &item.work) != 1)
			_exit(1);
		uw_work_flush(&item.work);
		_exit(atomic_load(&item.runs) == 1 ? 0 : 2);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(uw_work_cancel_sync(&item.delayed.work) == 1);
	CHECK(uw_queue_destroy(queue) == 0);
}

static atomic_int reports;

static void reporter(const char *text)
{
	CHECK(text[0]);
	atomic_fetch_add(&reports, 1);
}

static void ending(void)
{
	struct uw_queue *queue;
	struct item item;
	char *report;

	CHECK(uw_set_reporter(reporter) == 0 && uw_set_reporter(reporter) == -EEXIST);
	/* By the kernel's rules that becomes a per-CPU queue, which is reported. */
	queue = uw_queue_create("unplaced", UW_KERNEL_RULES, 0);
	CHECK(queue && (uw_queue_flags(queue) & (int)UW_PERCPU));
	CHECK(atomic_load(&reports) == 1);
	init(&item);
	CHECK(uw_queue_work(queue, &item.work) == 1);
	CHECK(uw_shutdown(7, 0, NULL) == -EINVAL);
	CHECK(uw_shutdown(UW_DRAIN, 60 * 1000 * MS, &report) == 0 && report[0]);
	uw_string_free(report);
	CHECK(atomic_load(&item.runs) == 1);
	CHECK(uw_queue_work(queue, &item.work) == -ESHUTDOWN);
	CHECK(uw_queue_destroy(queue) == 0);
}

int main(void)
{
	items();
	initialisers();
	used_first_by_several();
	attributes();
	dedicated();
	functions();
	cancelled_job();
	forked();
	ending();
	puts("ok");
	return 0;
}
