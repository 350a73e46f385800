// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Thread hooks and the BH context. There a thread may sleep (in the BH context it is reported), and a wait for items
 * ends the process: if it returned, its caller would free a queued item. Each scene is a process of its own.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/kthread.h>
#include <linux/mutex.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#include "scene.h"

static void (*in_scene)(void);
static DECLARE_COMPLETION(over);

static void *hook(const struct uw_thread *thread, void *arg)
{
	(void)thread, (void)arg;
	in_scene();
	return NULL;
}

static void nothing(struct work_struct *work)
{
	(void)work;
}

static struct work_struct work;

/* Calls it in the start hook of each worker. */
static void in_a_hook(void (*scene)(void))
{
	in_scene = scene;
	INIT_WORK(&work, nothing);
	if (!uw_thread_hooks_add(hook, NULL, NULL))
		_exit(1);
	queue_work(system_dfl_wq, &work);
	flush_work(&work);
}

static void call_scene(struct tasklet_struct *tasklet)
{
	(void)tasklet;
	in_scene();
	complete(&over);
}

static void in_a_tasklet(void (*scene)(void))
{
	static struct tasklet_struct tasklet;

	in_scene = scene;
	tasklet_setup(&tasklet, call_scene);
	tasklet_schedule(&tasklet);
	wait_for_completion(&over);
}

static int complete_it(void *completion)
{
	complete(completion);
	return 0;
}

static DEFINE_MUTEX(mutex);
static int before_lock;

static void sleep_in_each_way(void)
{
	DECLARE_COMPLETION_ONSTACK(completion);
	uint64_t begin = uw_kernel_now_ns();

	msleep(1);
	if (uw_kernel_now_ns() - begin < 1000000)
		_exit(2);
	if (IS_ERR(kthread_run(complete_it, &completion, "other")))
		_exit(3);
	wait_for_completion(&completion);
	__atomic_store_n(&before_lock, 1, __ATOMIC_RELEASE);
	mutex_lock(&mutex);
	mutex_unlock(&mutex);
}

static int unlock_for_others(void *unused)
{
	(void)unused;
	mutex_lock(&mutex);
	complete(&over);
	while (!__atomic_load_n(&before_lock, __ATOMIC_ACQUIRE))
		cond_resched();
	mutex_unlock(&mutex);
	return 0;
}

static void hold_the_mutex(void)
{
	if (IS_ERR(kthread_run(unlock_for_others, NULL, "holder")))
		_exit(1);
	wait_for_completion(&over);
}

static void sleep_in_a_hook(void)
{
	hold_the_mutex();
	in_a_hook(sleep_in_each_way);
}

static void sleep_in_a_tasklet(void)
{
	hold_the_mutex();
	in_a_tasklet(sleep_in_each_way);
}

/* The scene ends, no wait in it is refused, and waits are reported this often at most. */
static void check_sleep(const char *name, void (*scene)(void), int reports)
{
	int status = status_of(name, scene), found = 0;
	const char *at = said;

	while ((at = strstr(at, "waits, which it must not"))) {
		at++;
		found++;
	}
	if (status != 0 || strstr(said, "panicked") || found > reports) {
		pr_err("%s ended with status %#x: %s\n", name, status, said);
		failed++;
	}
}

static int ran;

static void count(struct work_struct *each)
{
	(void)each;
	__atomic_fetch_add(&ran, 1, __ATOMIC_RELAXED);
}

/* Refused before anything is queued. */
static void visit_each_cpu(void)
{
	if (schedule_on_each_cpu(count) != -EDEADLK)
		_exit(2);
}

static void each_cpu_in_a_hook(void)
{
	in_a_hook(visit_each_cpu);
	if (schedule_on_each_cpu(nothing) != 0 || ran != 0)
		_exit(3);
}

static void each_cpu_in_a_tasklet(void)
{
	in_a_tasklet(visit_each_cpu);
	if (schedule_on_each_cpu(nothing) != 0 || ran != 0)
		_exit(3);
}

static void timed_out(struct timer_list *timer)
{
	(void)timer;
}

static DEFINE_TIMER(timer, timed_out);

static void call_flush(void)
{
	flush_work(&work);
}

static void call_cancel(void)
{
	cancel_work_sync(&work);
}

static void call_timer_delete(void)
{
	timer_delete_sync(&timer);
}

static void call_timer_shutdown(void)
{
	timer_shutdown_sync(&timer);
}

static void call_tasklet_kill(void)
{
	struct tasklet_struct tasklet;

	tasklet_setup(&tasklet, NULL);
	tasklet_kill(&tasklet);
}

static void call_destroy(void)
{
	destroy_workqueue(alloc_workqueue("hook", WQ_UNBOUND, 0));
}

static const struct {
	const char *name;
	void (*call)(void);
} waits[] = {
	{ "flush_work", call_flush },
	{ "cancel_work_sync", call_cancel },
	{ "timer_delete_sync", call_timer_delete },
	{ "timer_shutdown_sync", call_timer_shutdown },
	{ "tasklet_kill", call_tasklet_kill },
	{ "destroy_workqueue", call_destroy },
};

static size_t tried;

static void try_in_a_hook(void)
{
	in_a_hook(waits[tried].call);
}

static int __init hooks_init(void)
{
	check_sleep("sleeps in a thread hook", sleep_in_a_hook, 0);
	check_sleep("sleeps in a tasklet", sleep_in_a_tasklet, 1);
	check_sleep("schedule_on_each_cpu in a thread hook", each_cpu_in_a_hook, 0);
	check_sleep("schedule_on_each_cpu in a tasklet", each_cpu_in_a_tasklet, 0);
	for (tried = 0; tried < ARRAY_SIZE(waits); tried++)
		check_abort(waits[tried].name, try_in_a_hook, "a thread hook was about to wait");
	return checked();
}

module_init(hooks_init)
MODULE_LICENSE("GPL");
