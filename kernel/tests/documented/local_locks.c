// SPDX-License-Identifier: MIT OR Apache-2.0
/* Per-CPU data with a named scope of protection. */
#include <linux/local_lock.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/workqueue.h>

struct queue_state {
	local_lock_t lock;
	unsigned int depth;
	unsigned int total;
};

static DEFINE_PER_CPU(struct queue_state, queue_state) = {
	.lock = INIT_LOCAL_LOCK(lock),
};

static void push(void)
{
	local_lock(&queue_state.lock);
	__this_cpu_inc(queue_state.depth);
	this_cpu_ptr(&queue_state)->total++;
	local_unlock(&queue_state.lock);
}

static void pop(void)
{
	unsigned long flags;

	local_lock_irqsave(&queue_state.lock, flags);
	if (this_cpu_read(queue_state.depth))
		this_cpu_dec(queue_state.depth);
	local_unlock_irqrestore(&queue_state.lock, flags);
}

static void exercise(struct work_struct *unused)
{
	int i;

	for (i = 0; i < 100; i++) {
		push();
		pop();
	}
	local_lock_irq(&queue_state.lock);
	this_cpu_ptr(&queue_state)->total++;
	local_unlock_irq(&queue_state.lock);
}

static int __init local_locks_init(void)
{
	unsigned int total = 0, depth = 0;
	int cpu, ret;

	ret = schedule_on_each_cpu(exercise);
	if (ret)
		return ret;
	for_each_possible_cpu(cpu) {
		struct queue_state *s = per_cpu_ptr(&queue_state, cpu);

		total += s->total;
		depth += s->depth;
	}
	if (depth || total != 101 * num_online_cpus())
		return -EINVAL;
	pr_info("local_lock: passed\n");
	return 0;
}

static void __exit local_locks_exit(void)
{
}

module_init(local_locks_init);
module_exit(local_locks_exit);
MODULE_LICENSE("GPL");
