// SPDX-License-Identifier: MIT OR Apache-2.0
/* A kthread worker with plain and delayed items. */
#include <linux/kthread.h>
#include <linux/module.h>

struct transfer {
	struct kthread_work work;
	int *order;
	int number;
};

static struct kthread_worker *worker;
static struct kthread_delayed_work late, never;
static int order[3];
static int nr_done;
static bool on_worker = true;

static void transfer_fn(struct kthread_work *work)
{
	struct transfer *t = container_of(work, struct transfer, work);

	if (current != worker->task)
		on_worker = false;
	t->order[nr_done++] = t->number;
}

static void late_fn(struct kthread_work *work)
{
	struct kthread_delayed_work *dwork = container_of(work, struct kthread_delayed_work, work);

	if (dwork != &late)
		on_worker = false;
	nr_done++;
}

static int __init transfers_init(void)
{
	struct transfer t[3];
	int i;

	worker = kthread_create_worker(0, "transfers");
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	sched_set_fifo_low(worker->task);
	for (i = 0; i < 3; i++) {
		t[i].number = i;
		t[i].order = order;
		kthread_init_work(&t[i].work, transfer_fn);
		kthread_queue_work(worker, &t[i].work);
	}
	kthread_flush_work(&t[0].work);
	kthread_flush_worker(worker);
	kthread_init_delayed_work(&late, late_fn);
	kthread_init_delayed_work(&never, late_fn);
	kthread_queue_delayed_work(worker, &late, 86400 * HZ);
	kthread_mod_delayed_work(worker, &late, 0);
	kthread_queue_delayed_work(worker, &never, 86400 * HZ);
	return 0;
}

static void __exit transfers_exit(void)
{
	bool cancelled = kthread_cancel_delayed_work_sync(&never);

	kthread_flush_work(&late.work);
	kthread_destroy_worker(worker);
	if (cancelled && on_worker && nr_done == 4 && order[0] == 0 && order[1] == 1 && order[2] == 2)
		pr_info("kthread worker: passed\n");
}

module_init(transfers_init);
module_exit(transfers_exit);
MODULE_LICENSE("GPL");
