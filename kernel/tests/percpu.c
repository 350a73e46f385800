// SPDX-License-Identifier: MIT OR Apache-2.0
/* Per-CPU data: parts of an allocation, alignment, freeing, impossible requests. */
#include <linux/kthread.h>
#include <linux/percpu.h>

#include "check.h"

struct stats {
	u64 first, second;
	u64 rest[14];
};

static DEFINE_PER_CPU(struct stats, fixed) = { .second = 7 };
static DEFINE_PER_CPU_ALIGNED(u64, aligned) __attribute__((aligned(64)));

/* Each CPU's copy of a member is a member of that CPU's copy. */
static void check_members(struct stats *stats)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		CHECK(per_cpu_ptr(&stats->second, cpu) == &per_cpu_ptr(stats, cpu)->second);
		CHECK(per_cpu_ptr(&stats->rest[13], cpu) == &per_cpu_ptr(stats, cpu)->rest[13]);
		memset(per_cpu_ptr(stats, cpu), (int)cpu + 1, sizeof(*stats));
	}
	for_each_possible_cpu(cpu)
		CHECK(*per_cpu_ptr(&stats->second, cpu) == (cpu + 1) * 0x0101010101010101ull);
}

static int count(void *data)
{
	struct stats *stats = data;
	int i;

	for (i = 0; i < 1000; i++) {
		this_cpu_inc(stats->second);
		this_cpu_add(fixed.second, 2);
	}
	return 0;
}

static void counters(void)
{
	struct stats *stats = alloc_percpu(struct stats);
	unsigned int cpu;
	u64 sum = 0, sum_of_fixed = 0, begin = 0;
	struct task_struct *task;

	CHECK(stats);
	for_each_possible_cpu(cpu)
		begin += per_cpu(fixed, cpu).second;
	for_each_online_cpu(cpu) {
		task = kthread_create(count, stats, "count/%u", cpu);
		CHECK(!IS_ERR(task));
		get_task_struct(task);
		kthread_bind(task, cpu);
		wake_up_process(task);
		while (READ_ONCE(per_cpu_ptr(stats, cpu)->second) < 1000)
			schedule_timeout_uninterruptible(1);
		kthread_stop_put(task);
		CHECK(per_cpu_ptr(stats, cpu)->second == 1000);
	}
	for_each_possible_cpu(cpu) {
		sum += *per_cpu_ptr(&stats->second, cpu);
		sum_of_fixed += per_cpu(fixed, cpu).second;
		CHECK(per_cpu_ptr(stats, cpu)->first == 0 && per_cpu_ptr(stats, cpu)->rest[0] == 0);
	}
	CHECK(sum == 1000ull * num_online_cpus() && sum_of_fixed == begin + 2000ull * num_online_cpus());
	check_members(stats);
	free_percpu(stats);
}

static void sizes(void)
{
	static void *kept[3000];
	unsigned int cpu;
	size_t align, i;
	void *all;

	for (align = 1; align <= 4096; align *= 2) {
		void *ptr = __alloc_percpu(3, align);

		CHECK(ptr);
		for_each_possible_cpu(cpu)
			CHECK((uintptr_t)per_cpu_ptr((char *)ptr, cpu) % align == 0);
		free_percpu(ptr);
	}
	for_each_possible_cpu(cpu)
		CHECK((uintptr_t)per_cpu_ptr(&aligned, cpu) % 64 == 0);
	/* More than the room would allow without freeing. Each allocation is zeroed again. */
	for (i = 0; i < 64; i++) {
		char *ptr = __alloc_percpu(1 << 20, 8);

		CHECK(ptr && *per_cpu_ptr(ptr + 4096, 0) == 0);
		*per_cpu_ptr(ptr + 4096, 0) = 1;
		free_percpu(ptr);
	}
	/* Blocks of all sizes are joined: with everything freed, half of the room is one block. */
	for (i = 0; i < ARRAY_SIZE(kept); i++) {
		kept[i] = __alloc_percpu(1 + i * 7 % 900, 8);
		CHECK(kept[i]);
	}
	for (i = 0; i < ARRAY_SIZE(kept); i++)
		free_percpu(kept[i * 7 % ARRAY_SIZE(kept)]);
	all = __alloc_percpu(UW_KERNEL_PERCPU_UNIT / 2, 8);
	CHECK(all);
	CHECK(!__alloc_percpu(UW_KERNEL_PERCPU_UNIT, 8));
	free_percpu(all);
	CHECK(!__alloc_percpu(UW_KERNEL_PERCPU_UNIT * 2, 8) && !__alloc_percpu(0, 8));
	CHECK(!__alloc_percpu(8, 24) && !__alloc_percpu(8, 8192));
	free_percpu(NULL);
}

static int __init percpu_init(void)
{
	check_members(&fixed);
	counters();
	sizes();
	return checked();
}
module_init(percpu_init)

MODULE_LICENSE("GPL");
