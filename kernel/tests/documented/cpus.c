// SPDX-License-Identifier: MIT OR Apache-2.0
/* CPU masks and functions on other CPUs. */
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/smp.h>
#include <linux/slab.h>
#include <linux/topology.h>

static DEFINE_PER_CPU(int, called);
static atomic_t calls = ATOMIC_INIT(0);

static void count_call(void *info)
{
	this_cpu_inc(called);
	atomic_add(*(int *)info, &calls);
}

static int __init cpus_init(void)
{
	cpumask_var_t mask;
	int cpu, one = 1, count = 0, ret = -EINVAL;

#ifndef CONFIG_SMP
#error this module needs more than one CPU
#endif
	if (!zalloc_cpumask_var(&mask, GFP_KERNEL))
		return -ENOMEM;
	cpus_read_lock();
	for_each_online_cpu(cpu) {
		cpumask_set_cpu(cpu, mask);
		if (smp_call_function_single(cpu, count_call, &one, 1))
			goto out;
	}
	on_each_cpu(count_call, &one, 1);
	on_each_cpu_mask(mask, count_call, &one, true);
	preempt_disable();
	smp_call_function_many(cpumask_of(smp_processor_id()), count_call, &one, true);
	preempt_enable();
	if (atomic_read(&calls) != 3 * num_online_cpus())
		goto out;
	for_each_cpu(cpu, mask)
		count += per_cpu(called, cpu);
	if (count != atomic_read(&calls))
		goto out;
	if (!cpumask_equal(mask, cpu_online_mask) || !cpumask_subset(mask, cpu_possible_mask) ||
	    cpumask_weight(mask) != num_online_cpus() || cpumask_empty(mask) ||
	    !cpumask_test_cpu(cpumask_first(mask), cpumask_of(cpumask_first(mask))))
		goto out;
	count = 0;
	for_each_possible_cpu_wrap(cpu, 1)
		count++;
	if (count != num_possible_cpus())
		goto out;
	cpumask_clear_cpu(cpumask_first(mask), mask);
	if (cpumask_weight(mask) != num_online_cpus() - 1 || cpumask_next(-1, cpu_online_mask) >= nr_cpu_ids)
		goto out;
	cpu = cpumask_first(cpu_online_mask);
	if (cpu_to_node(cpu) < 0 || !cpumask_test_cpu(cpu, cpumask_of_node(cpu_to_node(cpu))))
		goto out;
	pr_info("cpus: passed (%*pbl)\n", cpumask_pr_args(cpu_online_mask));
	ret = 0;
out:
	cpus_read_unlock();
	free_cpumask_var(mask);
	return ret;
}

static void __exit cpus_exit(void)
{
}

module_init(cpus_init);
module_exit(cpus_exit);
MODULE_LICENSE("GPL");
