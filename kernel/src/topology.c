/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The CPUs' topology as the system reports it, and functions that run on a given CPU. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <linux/topology.h>
#include "cancel.h"
#include "read_file.h"

#define CPU_FOLDER "/sys/devices/system/cpu/cpu%u/"
#define CACHE_LEVELS 8

struct shared {
	struct cpumask masks[UW_SHARING_KINDS];
	int ids[UW_SHARING_KINDS];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* One entry for each CPU; NULL if the allocation failed. */
static struct shared *shared;

/* Reads a CPU's file, which has one line. Returns false if there is none. */
static bool read_line(char *line, size_t size, unsigned int cpu, const char *name)
{
	char path[128];
	UW_HOLD_CANCEL_OFF;

	snprintf(path, sizeof(path), CPU_FOLDER "%s", cpu, name);
	return uw_kernel_read_file(path, line, size) && line[0] != '\0';
}

static bool read_mask(struct cpumask *mask, unsigned int cpu, const char *name)
{
	char line[4096];

	return read_line(line, sizeof(line), cpu, name) && uw_kernel_parse_list(line, mask) == 0 &&
	       cpumask_test_cpu((int)cpu, mask);
}

/* The CPUs that share the cache of the highest level. */
static bool read_cache(struct cpumask *mask, unsigned int cpu)
{
	int index, highest = 0;

	for (index = 0; index < CACHE_LEVELS; index++) {
		char name[64], line[16];
		int level;

		snprintf(name, sizeof(name), "cache/index%d/level", index);
		if (!read_line(line, sizeof(line), cpu, name))
			break;
		level = atoi(line);
		snprintf(name, sizeof(name), "cache/index%d/shared_cpu_list", index);
		if (level > highest && read_mask(mask, cpu, name))
			highest = level;
	}
	return highest > 0;
}

static void read_cpu(struct shared *of, unsigned int cpu)
{
	static const struct {
		const char *list, *old_list, *id;
	} files[UW_SHARING_KINDS] = {
		[UW_SHARING_CORE] = { "topology/core_cpus_list", "topology/thread_siblings_list", "topology/core_id" },
		[UW_SHARING_CLUSTER] = { "topology/cluster_cpus_list", NULL, "topology/cluster_id" },
		[UW_SHARING_PACKAGE] = { "topology/package_cpus_list", "topology/core_siblings_list",
					 "topology/physical_package_id" },
	};
	int kind;

	for (kind = 0; kind < UW_SHARING_KINDS; kind++) {
		struct cpumask *mask = &of->masks[kind];
		char line[16];
		bool is_known;

		if (kind == UW_SHARING_CACHE)
			is_known = read_cache(mask, cpu);
		else
			is_known = read_mask(mask, cpu, files[kind].list) ||
				   (files[kind].old_list && read_mask(mask, cpu, files[kind].old_list));
		if (!is_known)
			cpumask_copy(mask, cpumask_of(cpu));
		of->ids[kind] = -1;
		if (files[kind].id && read_line(line, sizeof(line), cpu, files[kind].id))
			of->ids[kind] = atoi(line);
	}
}

static void read_all(void)
{
	unsigned int cpu;

	shared = calloc(nr_cpu_ids, sizeof(*shared));
	if (!shared)
		return;
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		read_cpu(&shared[cpu], cpu);
}

const struct cpumask *uw_kernel_sharing_mask(enum uw_kernel_sharing kind, unsigned int cpu)
{
	pthread_once(&once, read_all);
	return shared && cpu < nr_cpu_ids ? &shared[cpu].masks[kind] : cpumask_of(cpu);
}

int uw_kernel_sharing_id(enum uw_kernel_sharing kind, unsigned int cpu)
{
	pthread_once(&once, read_all);
	return shared && cpu < nr_cpu_ids ? shared[cpu].ids[kind] : -1;
}

/* ------------------------------------------------------------------------------- calls on a CPU */

struct call {
	smp_call_func_t function;
	void *info;
};

static long run_call(void *arg)
{
	const struct call *call = arg;

	call->function(call->info);
	return 0;
}

int smp_call_function_single(int cpu, smp_call_func_t function, void *info, int wait)
{
	struct call call = { function, info };
	long result;

	(void)wait;
	if (cpu < 0 || !cpu_online(cpu))
		return -ENXIO;
	return uw_work_on_cpu(cpu, run_call, &call, &result);
}

void uw_kernel_call_on(const struct cpumask *mask, smp_call_func_t function, void *info, bool self)
{
	int this_cpu = uw_kernel_this_cpu();
	unsigned int cpu;

	for_each_cpu_and(cpu, mask, cpu_online_mask) {
		int error = self || (int)cpu != this_cpu ? smp_call_function_single((int)cpu, function, info, 1) : 0;

		if (error)
			uw_kernel_complain(error);
	}
}
