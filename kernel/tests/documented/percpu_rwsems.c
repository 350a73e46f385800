// SPDX-License-Identifier: MIT OR Apache-2.0
/* A per-CPU reader-writer semaphore: many readers, a rare writer. */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/percpu-rwsem.h>

DEFINE_STATIC_PERCPU_RWSEM(static_sem);
static struct percpu_rw_semaphore sem;
static int first, second;
static DECLARE_COMPLETION(started);

static int reader(void *unused)
{
	int torn = 0;

	complete(&started);
	while (!kthread_should_stop()) {
		percpu_down_read(&sem);
		if (first != second)
			torn++;
		percpu_up_read(&sem);
		cond_resched();
	}
	return torn;
}

static int __init percpu_rwsems_init(void)
{
	struct task_struct *tasks[2];
	int i, torn = 0, ret;

	ret = percpu_init_rwsem(&sem);
	if (ret)
		return ret;
	for (i = 0; i < 2; i++) {
		tasks[i] = kthread_run(reader, NULL, "reader/%d", i);
		if (IS_ERR(tasks[i]))
			return PTR_ERR(tasks[i]);
		wait_for_completion(&started);
	}
	for (i = 0; i < 20; i++) {
		percpu_down_write(&sem);
		first++;
		cond_resched();
		second++;
		percpu_up_write(&sem);
	}
	for (i = 0; i < 2; i++)
		torn += kthread_stop(tasks[i]);

	percpu_down_read(&static_sem);
	if (!percpu_down_read_trylock(&static_sem))
		torn++;
	percpu_up_read(&static_sem);
	percpu_up_read(&static_sem);
	if (torn)
		return -EINVAL;
	pr_info("percpu_rwsem: passed\n");
	return 0;
}

static void __exit percpu_rwsems_exit(void)
{
	percpu_free_rwsem(&sem);
}

module_init(percpu_rwsems_init);
module_exit(percpu_rwsems_exit);
MODULE_LICENSE("GPL");
