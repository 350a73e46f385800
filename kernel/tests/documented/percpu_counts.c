// SPDX-License-Identifier: MIT OR Apache-2.0
/* Counters and reference counts with a part for each CPU, states of CPU hotplug, and local_t. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/percpu-refcount.h>
#include <linux/percpu_counter.h>
#include <asm/local.h>

#define THREADS 4
#define ROUNDS 20000

static struct percpu_counter counter;
static struct percpu_ref ref;
static DECLARE_COMPLETION(released);
static DECLARE_COMPLETION(confirmed);
static DECLARE_COMPLETION(counted);
static DEFINE_PER_CPU(local_t, hits);
static atomic_t online_calls = ATOMIC_INIT(0);
static unsigned int fail_at = ~0u;
static int failed;

#define EXPECT(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%d: %s failed\n", __LINE__, #condition); \
			failed = 1; \
		} \
	} while (0)

static int count_up(void *unused)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		percpu_counter_inc(&counter);
		local_inc(this_cpu_ptr(&hits));
		if (percpu_ref_tryget_live(&ref))
			percpu_ref_put(&ref);
	}
	complete(&counted);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static void on_release(struct percpu_ref *of)
{
	complete(&released);
}

static void on_confirm(struct percpu_ref *of)
{
	complete(&confirmed);
}

static void test_threads(void)
{
	struct task_struct *threads[THREADS];
	long total = 0;
	int i, cpu;

	EXPECT(percpu_counter_init(&counter, 5, GFP_KERNEL) == 0 && percpu_counter_initialized(&counter));
	EXPECT(percpu_ref_init(&ref, on_release, 0, GFP_KERNEL) == 0);
	for (i = 0; i < THREADS; i++)
		threads[i] = kthread_run(count_up, NULL, "count/%d", i);
	percpu_ref_get(&ref);
	percpu_ref_kill_and_confirm(&ref, on_confirm);
	wait_for_completion(&confirmed);
	EXPECT(percpu_ref_is_dying(&ref) && !percpu_ref_tryget_live(&ref) && !percpu_ref_is_zero(&ref));
	EXPECT(percpu_ref_tryget(&ref));
	percpu_ref_put(&ref);
	EXPECT(!try_wait_for_completion(&released));
	for (i = 0; i < THREADS; i++)
		wait_for_completion(&counted);
	for (i = 0; i < THREADS; i++)
		kthread_stop(threads[i]);
	percpu_ref_put(&ref);
	wait_for_completion(&released);
	EXPECT(percpu_ref_is_zero(&ref) && !percpu_ref_tryget(&ref));
	percpu_ref_reinit(&ref);
	EXPECT(percpu_ref_tryget_live(&ref) && !percpu_ref_is_dying(&ref));
	percpu_ref_exit(&ref);

	for_each_possible_cpu(cpu)
		total += local_read(per_cpu_ptr(&hits, cpu));
	EXPECT(total == (long)THREADS * ROUNDS);
	EXPECT(percpu_counter_sum(&counter) == (s64)THREADS * ROUNDS + 5);
	EXPECT(percpu_counter_compare(&counter, (s64)THREADS * ROUNDS + 5) == 0);
	EXPECT(percpu_counter_compare(&counter, 1) > 0 && percpu_counter_compare(&counter, 1ll << 40) < 0);
	percpu_counter_sync(&counter);
	EXPECT(percpu_counter_read(&counter) == (s64)THREADS * ROUNDS + 5);
	percpu_counter_set(&counter, -3);
	EXPECT(percpu_counter_sum(&counter) == -3 && percpu_counter_sum_positive(&counter) == 0);
	percpu_counter_destroy(&counter);
}

static int cpu_starts(unsigned int cpu)
{
	if (cpu == fail_at || cpu != smp_processor_id())
		return -ENODEV;
	atomic_inc(&online_calls);
	return 0;
}

static int cpu_ends(unsigned int cpu)
{
	atomic_dec(&online_calls);
	return 0;
}

static void test_hotplug(void)
{
	int state = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "test:online", cpu_starts, cpu_ends);
	int other;

	EXPECT(state > 0 && atomic_read(&online_calls) == (int)num_online_cpus());
	other = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "test:other", cpu_starts, cpu_ends);
	EXPECT(other > 0 && other != state && atomic_read(&online_calls) == (int)num_online_cpus());
	cpuhp_remove_state_nocalls(other);
	cpuhp_remove_state(state);
	EXPECT(atomic_read(&online_calls) == 0);
	/* A failure takes back what was set up. */
	fail_at = cpumask_last(cpu_online_mask);
	EXPECT(cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "test:fail", cpu_starts, cpu_ends) == -ENODEV);
	EXPECT(atomic_read(&online_calls) == 0);
}

static int __init percpu_counts_init(void)
{
	test_threads();
	test_hotplug();
	EXPECT(task_cpu(current) < nr_cpu_ids);
	pr_info("%s\n", failed ? "not all right" : "passed");
	return failed ? -EIO : 0;
}

static void __exit percpu_counts_exit(void)
{
}

module_init(percpu_counts_init);
module_exit(percpu_counts_exit);
MODULE_LICENSE("GPL");
