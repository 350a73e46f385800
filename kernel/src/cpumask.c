/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The machine's CPUs, in the kernel's mask type. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include <linux/preempt.h>
#include <linux/cpumask.h>
#include <linux/numa.h>

#include "held_cpu.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cpumask online, possible;
static struct cpumask single[NR_CPUS];
static struct cpumask nodes[MAX_NUMNODES];
static unsigned int count;

static void read_machine(void)
{
	unsigned int cpu;

	if (uw_cpus(UW_CPUS_ALLOWED, online.bits, sizeof(online.bits)) <= 0)
		__set_bit(0, online.bits);
	if (uw_cpus(UW_CPUS_POSSIBLE, possible.bits, sizeof(possible.bits)) <= 0)
		possible = online;
	for (cpu = 0; cpu < NR_CPUS; cpu++) {
		int node = cpumask_test_cpu((int)cpu, &possible) ? uw_cpu_node((int)cpu) : -1;

		__set_bit(cpu, single[cpu].bits);
		if (cpumask_test_cpu((int)cpu, &possible))
			count = cpu + 1;
		if (node >= 0 && node < MAX_NUMNODES && cpumask_test_cpu((int)cpu, &online))
			__set_bit(cpu, nodes[node].bits);
	}
}

const struct cpumask *uw_kernel_cpus_online(void)
{
	pthread_once(&once, read_machine);
	return &online;
}

const struct cpumask *uw_kernel_cpus_possible(void)
{
	pthread_once(&once, read_machine);
	return &possible;
}

unsigned int uw_kernel_nr_cpus(void)
{
	pthread_once(&once, read_machine);
	return count;
}

const struct cpumask *uw_kernel_cpu_mask(unsigned int cpu)
{
	pthread_once(&once, read_machine);
	return &single[cpu % NR_CPUS];
}

const struct cpumask *uw_kernel_node_mask(int node)
{
	pthread_once(&once, read_machine);
	return node >= 0 && node < MAX_NUMNODES ? &nodes[node] : &online;
}

static __thread struct {
	int cpu;
	unsigned int depth;
} held;

int uw_kernel_this_cpu(void)
{
	int cpu = held.depth ? held.cpu : sched_getcpu();

	return cpu < 0 ? 0 : cpu;
}

bool uw_kernel_is_cpu_held(void)
{
	return held.depth != 0;
}

void uw_kernel_hold_cpu(int cpu)
{
	held.cpu = cpu;
	held.depth++;
}

void uw_kernel_let_cpu_go(void)
{
	held.depth--;
}

void uw_kernel_keep_cpu(void)
{
	uw_kernel_hold_cpu(uw_kernel_this_cpu());
}

/* One call too many has no effect. */
void uw_kernel_release_cpu(void)
{
	if (held.depth)
		uw_kernel_let_cpu_go();
}

bool uw_kernel_alloc_mask(cpumask_var_t *mask)
{
	*mask = calloc(1, sizeof(**mask));
	return *mask != NULL;
}

void uw_kernel_free_mask(cpumask_var_t mask)
{
	free(mask);
}

int uw_kernel_parse_list(const char *text, struct cpumask *mask)
{
	return bitmap_parselist(text, cpumask_bits(mask), NR_CPUS);
}
