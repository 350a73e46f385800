// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * In the style of older drivers: asm headers, typeof and asm, old queues, an open-coded wait loop,
 * a hash.
 */
#include <linux/kernel.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/version.h>
#include <linux/sched/signal.h>
#include <linux/hashtable.h>
#include <linux/interrupt.h>
#include <linux/seqlock.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include <asm/atomic.h>
#include <asm/barrier.h>
#include <asm/processor.h>
#include <asm/current.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 15, 0)
#error "too old"
#endif

#define my_max(a, b) ({ typeof(a) _a = (a); typeof(b) _b = (b); _a > _b ? _a : _b; })

static DEFINE_HASHTABLE(table, 4);
static DEFINE_RWLOCK(table_lock);
static DECLARE_WAIT_QUEUE_HEAD(waiters);
static atomic_t left = ATOMIC_INIT(8);
static struct workqueue_struct *old_wq;

struct job {
	int id;
	struct hlist_node hash;
	struct work_struct work;
};

static void job_fn(struct work_struct *w)
{
	struct job *job = container_of(w, struct job, work);

	write_lock_bh(&table_lock);
	hash_add(table, &job->hash, job->id);
	write_unlock_bh(&table_lock);
	if (atomic_dec_and_test(&left))
		wake_up_interruptible(&waiters);
}

static int __init old_init(void)
{
	static struct job jobs[8];
	struct job *at;
	int i, bkt, sum = 0, ret = 0;
	DECLARE_WAITQUEUE(wait, current);

	old_wq = create_singlethread_workqueue("old");
	if (!old_wq)
		return -ENOMEM;
	for (i = 0; i < 8; i++) {
		jobs[i].id = i;
		INIT_WORK(&jobs[i].work, job_fn);
		if (!queue_work(old_wq, &jobs[i].work))
			ret = -EBUSY;
	}
	add_wait_queue(&waiters, &wait);
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (!atomic_read(&left))
			break;
		if (signal_pending(current)) {
			ret = -ERESTARTSYS;
			break;
		}
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	remove_wait_queue(&waiters, &wait);
	flush_workqueue(old_wq);
	asm volatile("" ::: "memory");
	read_lock(&table_lock);
	hash_for_each(table, bkt, at, hash)
		sum = my_max(sum, at->id);
	read_unlock(&table_lock);
	smp_mb();
	cpu_relax();
	destroy_workqueue(old_wq);
	printk(KERN_INFO "old: %d, %s\n", sum, __stringify(HZ));
	return sum == 7 ? ret : -EINVAL;
}

static void __exit old_exit(void)
{
}

module_init(old_init);
module_exit(old_exit);
MODULE_AUTHOR("uwork");
MODULE_LICENSE("Dual MIT/GPL");
