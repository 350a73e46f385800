// SPDX-License-Identifier: MIT OR Apache-2.0
/* Per-CPU counters, static and allocated, with this_cpu operations. */
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <linux/workqueue.h>

struct stats {
	u64 packets;
	u64 bytes;
};

static DEFINE_PER_CPU(unsigned long, hits);
static DEFINE_PER_CPU(struct stats, stats);
static struct stats __percpu *dynamic;

static void hit(struct work_struct *unused)
{
	struct stats *s;

	this_cpu_inc(hits);
	this_cpu_add(dynamic->bytes, 100);
	this_cpu_inc(dynamic->packets);

	s = &get_cpu_var(stats);
	s->packets++;
	s->bytes += 10;
	put_cpu_var(stats);

	s = get_cpu_ptr(dynamic);
	s->bytes++;
	put_cpu_ptr(dynamic);
}

static int __init per_cpu_init(void)
{
	unsigned long sum = 0;
	u64 bytes = 0, packets = 0;
	int cpu, me, ret;

	dynamic = alloc_percpu(struct stats);
	if (!dynamic)
		return -ENOMEM;
	ret = schedule_on_each_cpu(hit);
	if (ret) {
		free_percpu(dynamic);
		return ret;
	}
	for_each_possible_cpu(cpu) {
		sum += per_cpu(hits, cpu);
		bytes += per_cpu_ptr(dynamic, cpu)->bytes + per_cpu(stats, cpu).bytes;
		packets += per_cpu_ptr(dynamic, cpu)->packets;
	}
	me = get_cpu();
	if (me != smp_processor_id() || raw_smp_processor_id() >= nr_cpu_ids)
		ret = -EINVAL;
	if (__this_cpu_read(hits) != 1)
		ret = -EINVAL;
	__this_cpu_inc(hits);
	if (this_cpu_inc_return(hits) != 3 || this_cpu_xchg(hits, 7) != 3 ||
	    this_cpu_cmpxchg(hits, 7, 9) != 7 || __this_cpu_add_return(hits, 1) != 10)
		ret = -EINVAL;
	put_cpu();
	if (sum != num_online_cpus() || packets != num_online_cpus() || bytes != 111 * num_online_cpus())
		ret = -EINVAL;
	if (ret)
		free_percpu(dynamic);
	else
		pr_info("per cpu: passed\n");
	return ret;
}

static void __exit per_cpu_exit(void)
{
	free_percpu(dynamic);
}

module_init(per_cpu_init);
module_exit(per_cpu_exit);
MODULE_LICENSE("GPL");
