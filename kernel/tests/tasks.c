// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Tasks: attributes set before a thread runs, the thread of a worker, threads that are never
 * stopped, contexts.
 */
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <uwork.h>

#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/rcupdate.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#include "check.h"

static int nice_of(const struct task_struct *task)
{
	return getpriority(PRIO_PROCESS, (id_t)task->pid);
}

/* The program's niceness, with which threads start. */
static int base;

/* A niceness above that, as far as the system has one. */
static int raised(int by)
{
	return base + by < MAX_NICE ? base + by : MAX_NICE;
}

static int give_nice(void *data)
{
	(void)data;
	return nice_of(current);
}

static void before_it_runs(void)
{
	struct task_struct *task;
	int i;

	for (i = 0; i < 50; i++) {
		task = kthread_create(give_nice, NULL, "nice/%d", i);
		CHECK(!IS_ERR(task) && task->pid > 0 && task->pid != current->pid && nice_of(task) == base);
		set_user_nice(task, raised(5));
		CHECK(nice_of(task) == raised(5));
		get_task_struct(task);
		wake_up_process(task);
		while (kthread_park(task) != -ENOSYS) {
			kthread_unpark(task);
			schedule_timeout_uninterruptible(1);
		}
		CHECK(kthread_stop_put(task) == raised(5));
	}
}

static struct task_struct *parking;
static int began, saw_park, may_park, is_held, is_over;

static int parks_once(void *data)
{
	(void)data;
	/* Before this store the thread would park by itself. */
	WRITE_ONCE(began, 1);
	while (!kthread_should_park())
		schedule_timeout_uninterruptible(1);
	WRITE_ONCE(saw_park, 1);
	/* Sleeps in another state than a parked thread. */
	while (!READ_ONCE(may_park))
		schedule_timeout_interruptible(1);
	kthread_parkme();
	return 0;
}

static int park_it(void *data)
{
	sigset_t held;

	(void)data;
	/* A kernel thread receives no signal that it has not unblocked. */
	sigemptyset(&held);
	sigaddset(&held, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &held, NULL);
	return kthread_park(parking);
}

#ifdef __SANITIZE_THREAD__
#define UNDER_THREAD_SANITIZER 1
#else
#define UNDER_THREAD_SANITIZER 0
#endif

static void hold(int number)
{
	(void)number;
	WRITE_ONCE(is_held, 1);
	while (!READ_ONCE(is_over))
		sched_yield();
}

/* The system's state letter for a thread; 0 if the thread does not exist. */
static char system_state(pid_t pid)
{
	char path[64], line[128], *name_end;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", pid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	got = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[got > 0 ? got : 0] = 0;
	name_end = strrchr(line, ')');
	return name_end ? name_end[2] : 0;
}

/*
 * kthread_park() returns 0 if the thread has parked, even if it has ended before the caller wakes
 * up.
 */
static void parked_and_ended(void)
{
	struct sigaction action = { .sa_handler = hold, .sa_flags = SA_RESTART };
	struct task_struct *parker;

	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	parking = kthread_run(parks_once, NULL, "parking");
	parker = kthread_create(park_it, NULL, "parker");
	CHECK(!IS_ERR(parking) && !IS_ERR(parker));
	get_task_struct(parking);
	get_task_struct(parker);
	while (!READ_ONCE(began))
		schedule_timeout_uninterruptible(1);
	wake_up_process(parker);
	/* Waits until the parker sleeps; then a signal handler keeps it from continuing. */
	while (!READ_ONCE(saw_park) || system_state(parker->pid) != 'S')
		schedule_timeout_uninterruptible(1);
	CHECK(syscall(SYS_tgkill, getpid(), parker->pid, SIGUSR1) == 0);
	while (!READ_ONCE(is_held))
		schedule_timeout_uninterruptible(1);
	WRITE_ONCE(may_park, 1);
	while (READ_ONCE(parking->__state) != TASK_UNINTERRUPTIBLE || system_state(parking->pid) != 'S')
		schedule_timeout_uninterruptible(1);
	kthread_unpark(parking);
	while (system_state(parking->pid))
		schedule_timeout_uninterruptible(1);
	CHECK(kthread_park(parking) == -ENOSYS);
	WRITE_ONCE(is_over, 1);
	CHECK(kthread_stop_put(parking) == 0);
	CHECK(kthread_stop_put(parker) == 0);
}

static struct task_struct *ran_in;
static unsigned int flags;

static void note(struct kthread_work *work)
{
	(void)work;
	ran_in = current;
	flags = current->flags;
}

static void workers(void)
{
	struct kthread_worker *worker = kthread_run_worker(0, "worker/%d", 1), own;
	struct kthread_work work;
	struct task_struct *task;
	int base_of_workers;

	kthread_init_work(&work, note);
	CHECK(!IS_ERR(worker) && worker->task && worker->task->pid > 0 && strcmp(worker->task->comm, "worker/1") == 0);
	base_of_workers = nice_of(worker->task);
	set_user_nice(worker->task, raised(3));
	CHECK(nice_of(worker->task) == raised(3));
	sched_set_fifo(worker->task);
	wake_up_process(worker->task);
	kthread_queue_work(worker, &work);
	kthread_flush_work(&work);
	CHECK(ran_in == worker->task && (flags & PF_KTHREAD) && !(flags & PF_WQ_WORKER));
	kthread_destroy_worker(worker);

	/* Its thread may be the one from above, with its original attributes. */
	worker = kthread_create_worker(0, "again");
	CHECK(!IS_ERR(worker) && nice_of(worker->task) == base_of_workers);
	CHECK(strcmp(worker->task->comm, "again") == 0);
	kthread_destroy_worker(worker);

	kthread_init_worker(&own);
	task = kthread_run(kthread_worker_fn, &own, "own");
	CHECK(!IS_ERR(task));
	set_user_nice(task, raised(4));
	while (READ_ONCE(own.task) != task)
		schedule_timeout_uninterruptible(1);
	do {
		kthread_queue_work(&own, &work);
		kthread_flush_worker(&own);
	} while (nice_of(ran_in) != raised(4));
	kthread_bind(READ_ONCE(own.task), cpumask_first(cpu_online_mask));
	CHECK(kthread_stop(READ_ONCE(own.task)) == 0);
}

static atomic_t ended;

static int end_at_once(void *data)
{
	(void)data;
	atomic_inc(&ended);
	return 0;
}

static void run_many(int count)
{
	int i, before = atomic_read(&ended);

	for (i = 0; i < count; i++) {
		CHECK(!IS_ERR(kthread_run(end_at_once, NULL, "short")));
		while (atomic_read(&ended) != before + i + 1)
			schedule_timeout_uninterruptible(1);
	}
}

/* The number of tasks kept for a kthread_stop() that never comes is bounded. */
static void never_stopped(void)
{
	size_t before;

	run_many(600);
	before = mallinfo2().uordblks;
	run_many(600);
	/* Each thread has run its function, and its task is freed when it has ended. */
	while (mallinfo2().uordblks >= before + 300 * sizeof(struct task_struct))
		schedule_timeout_uninterruptible(1);
}

static struct execute_work deferred;
static struct completion timer_done, work_done;
static int answer_in_timer;
static bool in_timer[4], in_work[4];

static void look(bool *seen)
{
	seen[0] = in_softirq();
	seen[1] = in_interrupt();
	seen[2] = in_task();
	seen[3] = (current->flags & PF_WQ_WORKER) != 0;
}

static void do_work(struct work_struct *work)
{
	(void)work;
	look(in_work);
	complete(&work_done);
}

static void do_timer(struct timer_list *timer)
{
	(void)timer;
	look(in_timer);
	answer_in_timer = execute_in_process_context(do_work, &deferred);
	complete(&timer_done);
}

static void contexts(void)
{
	static DEFINE_TIMER(timer, do_timer);

	init_completion(&timer_done);
	init_completion(&work_done);
	CHECK(!in_softirq() && !in_interrupt() && in_task() && !(current->flags & PF_WQ_WORKER));
	mod_timer(&timer, jiffies + 1);
	wait_for_completion(&timer_done);
	wait_for_completion(&work_done);
	CHECK(answer_in_timer == 1);
	CHECK(in_timer[0] && in_timer[1] && !in_timer[2]);
	CHECK(!in_work[0] && !in_work[1] && in_work[2] && in_work[3]);
	CHECK(execute_in_process_context(do_work, &deferred) == 0 && try_wait_for_completion(&work_done));
	CHECK(!in_work[3]);
	timer_delete_sync(&timer);
	flush_work(&deferred.work);
}

static unsigned int flags_of_rescuer;
/* Valid for the life of the process, also after the removal. */
static struct uw_thread_hooks *worker_hooks;

static void *see_current(const struct uw_thread *thread, void *arg)
{
	if (thread->kind == UW_THREAD_RESCUER) {
		flags_of_rescuer = current->flags;
		complete(arg);
	}
	return current;
}

/* `current` is set on every thread that may run items, also in the hooks of its start. */
static void hooks(void)
{
	DECLARE_COMPLETION_ONSTACK(called);
	struct workqueue_struct *reclaim;

	worker_hooks = uw_thread_hooks_add(see_current, NULL, &called);
	reclaim = alloc_workqueue("reclaim", WQ_MEM_RECLAIM | WQ_PERCPU, 0);
	CHECK(worker_hooks && reclaim);
	wait_for_completion(&called);
	CHECK((flags_of_rescuer & PF_WQ_WORKER) && (flags_of_rescuer & PF_KTHREAD));
	CHECK(uw_thread_hooks_remove(worker_hooks) == 0);
	destroy_workqueue(reclaim);
}

static void ticks(void)
{
	unsigned long delta;

	for (delta = 1; delta < 3 * HZ; delta += 7) {
		/* The clock itself: the variable jiffies may lag behind it on a busy machine. */
		unsigned long before = UW_KERNEL_JIFFIES, rounded = round_jiffies_up_relative(delta);
		unsigned long after = UW_KERNEL_JIFFIES;

		CHECK(rounded >= delta && rounded < delta + HZ);
		CHECK((before + rounded) % HZ == 0 || before != after);
	}
	CHECK(msecs_to_jiffies((unsigned int)-1) == MAX_JIFFY_OFFSET && msecs_to_jiffies(0) == 0);

	/* A full second an hour from now, and the times around it. */
	unsigned long hour = round_jiffies_up(jiffies + 3600 * HZ);

	CHECK(hour % HZ == 0 && round_jiffies(hour) == hour && round_jiffies_up(hour) == hour);
	CHECK(round_jiffies(hour + HZ / 4 - 1) == hour && round_jiffies(hour + HZ / 4) == hour + HZ);
	CHECK(round_jiffies_up(hour + 1) == hour + HZ && round_jiffies_up(hour - 1) == hour);
	/* Times of the past stay as they are, also where the full second is in the past alone. */
	hour = jiffies / HZ * HZ - 3600 * HZ;
	CHECK(round_jiffies(hour + 1) == hour + 1 && round_jiffies_up(hour + 1) == hour + 1);
}

static DECLARE_COMPLETION(grace_ended);

static void note_grace(struct rcu_head *head)
{
	(void)head;
	complete(&grace_ended);
}

/* The grace period of a callback and of a barrier completes earlier states. */
static void polled_grace_periods(void)
{
	static struct rcu_head head;
	unsigned long state;

	rcu_read_lock();
	state = get_state_synchronize_rcu();
	/* No grace period completes the state before this reader has left. */
	CHECK(!poll_state_synchronize_rcu(state));
	rcu_read_unlock();
	call_rcu(&head, note_grace);
	wait_for_completion(&grace_ended);
	CHECK(poll_state_synchronize_rcu(state));
	rcu_read_lock();
	state = get_state_synchronize_rcu();
	CHECK(!poll_state_synchronize_rcu(state));
	rcu_read_unlock();
	rcu_barrier();
	CHECK(poll_state_synchronize_rcu(state));
}

/* Last: without a privilege the niceness cannot be lowered again. */
static void attributes_of_a_raised_process(void)
{
	struct workqueue_struct *polite;
	struct workqueue_attrs *attrs;

	CHECK(setpriority(PRIO_PROCESS, (id_t)getpid(), raised(5)) == 0);
	polite = alloc_workqueue("polite", WQ_UNBOUND, 0);
	attrs = alloc_workqueue_attrs();
	CHECK(polite && attrs && attrs->nice == raised(5));
	CHECK(apply_workqueue_attrs(polite, attrs) == 0);
	free_workqueue_attrs(attrs);
	destroy_workqueue(polite);
}

static int __init tasks_init(void)
{
	struct workqueue_struct *rcu = alloc_workqueue("rcu", WQ_UNBOUND, 0);
	struct workqueue_struct *kworker = alloc_workqueue("kworker", WQ_UNBOUND, 0);

	base = nice_of(current);
	before_it_runs();
	/* The thread sanitizer delays signals while a thread is in a system call. */
	if (!UNDER_THREAD_SANITIZER)
		parked_and_ended();
	workers();
	never_stopped();
	contexts();
	hooks();
	ticks();
	polled_grace_periods();
	attributes_of_a_raised_process();
	destroy_workqueue(kworker);
	destroy_workqueue(rcu);
	return checked();
}
module_init(tasks_init)

MODULE_LICENSE("GPL");
