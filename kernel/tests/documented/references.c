// SPDX-License-Identifier: MIT OR Apache-2.0
/* Reference counts: the example of kref with a thread, and refcount_t alone. */
#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/refcount.h>
#include <linux/slab.h>

struct my_data {
	struct kref refcount;
	int value;
};

static DECLARE_COMPLETION(released);
static DEFINE_MUTEX(mutex);
static refcount_t users = REFCOUNT_INIT(1);

static void data_release(struct kref *ref)
{
	struct my_data *data = container_of(ref, struct my_data, refcount);

	kfree(data);
	complete(&released);
}

static int more_data_handling(void *cb_data)
{
	struct my_data *data = cb_data;

	data->value++;
	kref_put(&data->refcount, data_release);
	return 0;
}

static int __init references_init(void)
{
	struct my_data *data;
	struct task_struct *task;
	int rv = 0;

	data = kmalloc(sizeof(*data), GFP_KERNEL);
	if (!data)
		return -ENOMEM;
	kref_init(&data->refcount);
	data->value = 0;

	kref_get(&data->refcount);
	task = kthread_run(more_data_handling, data, "more_data_handling");
	if (IS_ERR(task)) {
		rv = PTR_ERR(task);
		kref_put(&data->refcount, data_release);
	}
	kref_put(&data->refcount, data_release);
	wait_for_completion(&released);
	if (rv)
		return rv;

	refcount_inc(&users);
	if (refcount_dec_and_test(&users) || refcount_read(&users) != 1)
		return -EINVAL;
	if (!refcount_dec_and_mutex_lock(&users, &mutex))
		return -EINVAL;
	mutex_unlock(&mutex);
	if (refcount_inc_not_zero(&users))
		return -EINVAL;
	refcount_set(&users, 3);
	refcount_add(2, &users);
	if (!refcount_sub_and_test(5, &users))
		return -EINVAL;
	pr_info("references: passed\n");
	return 0;
}

static void __exit references_exit(void)
{
}

module_init(references_init);
module_exit(references_exit);
MODULE_LICENSE("GPL");
