// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Task work: it runs in order, once, where the task asks for it and at its end; and it can be
 * cancelled.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/task_work.h>

#include "check.h"

#define WORKS 1000

struct counted {
	struct callback_head head;
	int number;
	struct task_struct *ran_in;
};

extern char *program_invocation_short_name;

static atomic_t next_number = ATOMIC_INIT(0);
static bool in_order = true;

static void count(struct callback_head *head)
{
	struct counted *counted = container_of(head, struct counted, head);

	in_order &= counted->number == atomic_fetch_inc(&next_number);
	counted->ran_in = current;
}

static void other(struct callback_head *head)
{
	container_of(head, struct counted, head)->ran_in = current;
}

static void in_this_task(void)
{
	struct counted works[3];
	int i;

	for (i = 0; i < 3; i++) {
		init_task_work(&works[i].head, i == 1 ? other : count);
		works[i].number = i / 2;
		works[i].ran_in = NULL;
		CHECK(task_work_add(current, &works[i].head, i == 2 ? TWA_NMI_CURRENT : TWA_NONE) == 0);
	}
	CHECK(task_work_pending(current) && !works[0].ran_in);
	CHECK(task_work_cancel_func(current, other) == &works[1].head && !task_work_cancel_func(current, other));
	task_work_run();
	CHECK(works[0].ran_in == current && works[2].ran_in == current && !works[1].ran_in && in_order && atomic_read(&next_number) == 2);
	CHECK(!task_work_pending(current) && !task_work_cancel(current, &works[0].head));
	CHECK(task_work_add(current, &works[1].head, TWA_RESUME) == 0 && task_work_cancel(current, &works[1].head));
	task_work_run();
	CHECK(!works[1].ran_in);
}

static DECLARE_COMPLETION(begun);

/* Sleeps until there is task work, and runs it. */
static int serve(void *data)
{
	complete(&begun);
	while (!kthread_should_stop()) {
		task_work_run();
		set_current_state(TASK_INTERRUPTIBLE);
		if (!task_work_pending(current) && !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
	}
	return *(int *)data;
}

static void storm(void)
{
	static struct counted works[WORKS], late;
	int result = 7, i, done = 0;
	struct task_struct *task = kthread_run(serve, &result, "serve");

	wait_for_completion(&begun);
	atomic_set(&next_number, 0);
	for (i = 0; i < WORKS; i++) {
		init_task_work(&works[i].head, count);
		works[i].number = i;
		CHECK(task_work_add(task, &works[i].head, i % 2 ? TWA_SIGNAL : TWA_SIGNAL_NO_IPI) == 0);
	}
	init_task_work(&late.head, other);
	CHECK(task_work_add(task, &late.head, TWA_NMI_CURRENT) == -EINVAL);
	get_task_struct(task);
	CHECK(kthread_stop(task) == 7);
	/* The task runs at its end what it has not run before. */
	while (task_work_add(task, &late.head, TWA_NONE) != -ESRCH || atomic_read(&next_number) < WORKS)
		schedule_timeout_uninterruptible(1);
	put_task_struct(task);
	for (i = 0; i < WORKS; i++)
		done += works[i].ran_in == task;
	CHECK(done == WORKS && in_order && atomic_read(&next_number) == WORKS);
}

/* A child's task has none of the parent's task work, and accepts its own. */
static void forked(void)
{
	struct counted of_parent = { .number = 0 }, of_child = { .number = 0 };
	int status;
	pid_t child;

	atomic_set(&next_number, 0);
	init_task_work(&of_parent.head, count);
	CHECK(task_work_add(current, &of_parent.head, TWA_NONE) == 0);
	child = fork();
	if (child == 0) {
		init_task_work(&of_child.head, other);
		failed = 0;
		CHECK(!task_work_pending(current) && task_work_add(current, &of_child.head, TWA_RESUME) == 0);
		task_work_run();
		CHECK(of_child.ran_in == current && !of_parent.ran_in);
		_exit(failed);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	task_work_run();
	CHECK(of_parent.ran_in == current);
}

static noinline void dumped(void)
{
	static char text[8192];
	int ends[2], error = dup(STDERR_FILENO);
	ssize_t length;

	CHECK(pipe(ends) == 0);
	dup2(ends[1], STDERR_FILENO);
	dump_stack();
	dup2(error, STDERR_FILENO);
	length = read(ends[0], text, sizeof(text) - 1);
	text[length > 0 ? length : 0] = '\0';
	CHECK(strstr(text, "Call Trace:") && strstr(text, "dumped") && strstr(text, "main"));
	close(ends[0]);
	close(ends[1]);
	close(error);
}

static int __init task_work_init(void)
{
	in_this_task();
	storm();
	if (CAN_FORK_WITH_THREADS)
		forked();
	dumped();
	CHECK(strcmp(THIS_MODULE->name, program_invocation_short_name) == 0);
	return checked();
}
module_init(task_work_init)

MODULE_LICENSE("GPL");
