/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions for a particular task: the library's task work. */
#include <linux/bug.h>
#include <linux/container_of.h>
#include <linux/errno.h>
#include <linux/task_work.h>

#include "task.h"

static struct callback_head *head_of(struct uw_task_work *item)
{
	return item ? UW_CONTAINER_OF(item, struct callback_head, uw_task_item) : NULL;
}

static void call(struct uw_task_work *item)
{
	struct callback_head *head = head_of(item);

	head->func(head);
}

void init_task_work(struct callback_head *twork, task_work_func_t func)
{
	uw_task_work_init(&twork->uw_task_item, call);
	twork->func = func;
}

int task_work_add(struct task_struct *task, struct callback_head *twork, enum task_work_notify_mode mode)
{
	struct uw_task *handle;
	int added;

	if (mode == TWA_NMI_CURRENT) {
		if (WARN_ON_ONCE(task != current))
			return -EINVAL;
		mode = TWA_RESUME;
	} else if (mode == TWA_SIGNAL_NO_IPI) {
		mode = TWA_SIGNAL;
	}
	handle = uw_task_handle(uw_task_of(task));
	added = handle ? uw_task_work_add(handle, &twork->uw_task_item, (unsigned int)mode) : -ESRCH;
	uw_task_put(handle);
	if (added > 0 && mode == TWA_SIGNAL)
		uw_kernel_wake_task(task, TASK_INTERRUPTIBLE);
	return added < 0 ? added : 0;
}

struct wanted {
	bool (*match)(struct callback_head *work, void *data);
	void *data;
};

static bool is_wanted(struct uw_task_work *item, void *data)
{
	struct wanted *wanted = data;

	return wanted->match(head_of(item), wanted->data);
}

struct callback_head *task_work_cancel_match(struct task_struct *task, bool (*match)(struct callback_head *work, void *data),
					     void *data)
{
	struct uw_task *handle = uw_task_handle(uw_task_of(task));
	struct wanted wanted = { match, data };
	struct uw_task_work *found = handle ? uw_task_work_cancel_match(handle, is_wanted, &wanted) : NULL;

	uw_task_put(handle);
	return head_of(found);
}

struct by_function {
	task_work_func_t func;
};

static bool has_function(struct callback_head *work, void *data)
{
	return work->func == ((struct by_function *)data)->func;
}

struct callback_head *task_work_cancel_func(struct task_struct *task, task_work_func_t func)
{
	struct by_function wanted = { func };

	return task_work_cancel_match(task, has_function, &wanted);
}

static bool is_that(struct callback_head *work, void *data)
{
	return work == data;
}

bool task_work_cancel(struct task_struct *task, struct callback_head *work)
{
	return task_work_cancel_match(task, is_that, work) != NULL;
}

/* Matches nothing, and so cancels nothing. It only records that there is an entry. */
static bool note_any(struct callback_head *work, void *data)
{
	(void)work;
	*(bool *)data = true;
	return false;
}

bool task_work_pending(struct task_struct *task)
{
	bool any = false;

	task_work_cancel_match(task, note_any, &any);
	return any;
}
