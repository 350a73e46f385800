// SPDX-License-Identifier: MIT OR Apache-2.0
/* BH work items: the replacement of tasklets. */
#include <linux/module.h>
#include <linux/workqueue.h>
#include <linux/bottom_half.h>
#include <linux/preempt.h>

static struct workqueue_struct *bh;
static int runs, outside;

static void bottom(struct work_struct *work)
{
	if (!in_serving_softirq())
		outside++;
	runs++;
}
static DECLARE_WORK(first, bottom);
static DECLARE_WORK(second, bottom);
static DECLARE_WORK(third, bottom);

static int __init bh_work_init(void)
{
	bh = alloc_workqueue("bottoms", WQ_BH | WQ_PERCPU, 0);
	if (!bh)
		return -ENOMEM;
	local_bh_disable();
	queue_work(bh, &first);
	queue_work(system_bh_wq, &second);
	local_bh_enable();
	queue_work(system_bh_highpri_wq, &third);
	flush_work(&first);
	flush_work(&second);
	flush_work(&third);
	destroy_workqueue(bh);
	if (runs != 3 || outside) {
		pr_err("bh_work: failed: %d runs, %d outside\n", runs, outside);
		return -EINVAL;
	}
	pr_info("bh_work: passed\n");
	return 0;
}

static void __exit bh_work_exit(void)
{
}

module_init(bh_work_init);
module_exit(bh_work_exit);
MODULE_LICENSE("GPL");
