// SPDX-License-Identifier: MIT OR Apache-2.0
/* Items embedded in objects, on a queue with a limit, freed by their own function. */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

struct job {
	struct work_struct work;
	int number;
};

static struct workqueue_struct *wq;
static atomic_t sum = ATOMIC_INIT(0);
static int seen;

static void job_fn(struct work_struct *work)
{
	struct job *job = container_of(work, struct job, work);

	atomic_add(job->number, &sum);
	kfree(job);
}

static void once_fn(struct work_struct *work)
{
	seen++;
}

static DECLARE_WORK(once, once_fn);

static int __init jobs_init(void)
{
	int i, ret = 0;

	wq = alloc_workqueue("jobs", WQ_MEM_RECLAIM | WQ_FREEZABLE, 4);
	if (!wq)
		return -ENOMEM;
	for (i = 1; i <= 100; i++) {
		struct job *job = kmalloc(sizeof(*job), GFP_KERNEL);

		if (!job) {
			ret = -ENOMEM;
			break;
		}
		INIT_WORK(&job->work, job_fn);
		job->number = i;
		queue_work(wq, &job->work);
	}
	flush_workqueue(wq);
	if (ret)
		goto err;
	if (atomic_read(&sum) != 5050) {
		ret = -EINVAL;
		goto err;
	}
	if (!queue_work(wq, &once)) {
		ret = -EINVAL;
		goto err;
	}
	flush_work(&once);
	if (work_pending(&once) || work_busy(&once) || cancel_work_sync(&once) || seen != 1)
		ret = -EINVAL;
	disable_work_sync(&once);
	if (queue_work(wq, &once))
		ret = -EINVAL;
	enable_work(&once);
	if (ret)
		goto err;
	return 0;
err:
	destroy_workqueue(wq);
	return ret;
}

static void __exit jobs_exit(void)
{
	schedule_work(&once);
	cancel_work_sync(&once);
	drain_workqueue(wq);
	destroy_workqueue(wq);
	pr_info("jobs: passed\n");
}

module_init(jobs_init);
module_exit(jobs_exit);
MODULE_LICENSE("GPL");
