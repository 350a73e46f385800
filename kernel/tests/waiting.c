// SPDX-License-Identifier: MIT OR Apache-2.0
/* Waiting and waking: wait queues, addresses, hrtimers, tasklets, SRCU, seqlocks, static kthread workers. */
#include <linux/module.h>
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/nmi.h>
#include <linux/kthread.h>
#include <linux/rwlock.h>
#include <linux/seqlock.h>
#include <linux/srcu.h>
#include <linux/swait.h>
#include <linux/wait.h>
#include "check.h"

#define ROUNDS 500

static DECLARE_WAIT_QUEUE_HEAD(queue);
static DECLARE_SWAIT_QUEUE_HEAD(simple);
static DEFINE_SPINLOCK(lock);
static atomic_t turn;
static unsigned long word;
static int guarded;

/* Each round makes its request in another way. The other thread responds by an increment. */
static int answer(void *unused)
{
	DEFINE_WAIT_FUNC(entry, woken_wake_function);
	int round;

	(void)unused;
	add_wait_queue(&queue, &entry);
	for (round = 0; round < ROUNDS; round++) {
		while (atomic_read_acquire(&turn) != 2 * round + 1)
			wait_woken(&entry, TASK_INTERRUPTIBLE, MAX_SCHEDULE_TIMEOUT);
		atomic_inc(&turn);
		smp_mb();
		wake_up_var(&turn);
	}
	remove_wait_queue(&queue, &entry);
	return round;
}

static void woken(void)
{
	struct task_struct *task = kthread_run(answer, NULL, "answer");
	int round;

	get_task_struct(task);
	CHECK((uintptr_t)kthread_func(task) == (uintptr_t)answer);
	for (round = 0; round < ROUNDS; round++) {
		atomic_inc(&turn);
		wake_up(&queue);
		wait_var_event(&turn, atomic_read_acquire(&turn) == 2 * round + 2);
	}
	CHECK(kthread_stop(task) == ROUNDS && atomic_read(&turn) == 2 * ROUNDS);
	put_task_struct(task);
	CHECK(wait_var_event_timeout(&turn, atomic_read(&turn) == 0, 2) == 0);
}

static int unlock_later(void *unused)
{
	(void)unused;
	spin_lock_irq(&lock);
	WRITE_ONCE(guarded, 1);
	wake_up_all_locked(&queue);
	spin_unlock_irq(&lock);
	clear_and_wake_up_bit(3, &word);
	WRITE_ONCE(guarded, 2);
	smp_mb();
	swake_up_all(&simple);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static void locked(void)
{
	struct task_struct *task;
	long left;

	set_bit(3, &word);
	CHECK(wait_on_bit_timeout(&word, 3, TASK_UNINTERRUPTIBLE, 2) == -EAGAIN);
	task = kthread_create(unlock_later, NULL, "unlock");
	spin_lock_irq(&lock);
	wake_up_process(task);
	wait_event_lock_irq(queue, READ_ONCE(guarded) >= 1, lock);
	CHECK(spin_is_locked(&lock) && READ_ONCE(guarded) >= 1);
	CHECK(wait_event_lock_irq_timeout(queue, READ_ONCE(guarded) > 9, lock, 2) == 0 && spin_is_locked(&lock));
	spin_unlock_irq(&lock);
	CHECK(wait_on_bit(&word, 3, TASK_UNINTERRUPTIBLE) == 0 && word == 0);
	swait_event_exclusive(simple, READ_ONCE(guarded) == 2);
	kthread_stop(task);
	left = ___wait_event(queue, ___wait_cond_timeout(READ_ONCE(guarded) == 9), TASK_UNINTERRUPTIBLE, 0, 2, __ret = schedule_timeout(__ret));
	CHECK(left == 0);
	left = ___wait_event(queue, ___wait_cond_timeout(READ_ONCE(guarded) == 2), TASK_UNINTERRUPTIBLE, 0, 2, __ret = schedule_timeout(__ret));
	CHECK(left == 2);
}

struct ticker {
	struct hrtimer timer;
	struct completion done;
	atomic_t runs;
	ktime_t interval;
	u64 forwarded;
};

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	struct ticker *ticker = container_of(timer, struct ticker, timer);

	if (atomic_inc_return(&ticker->runs) == 5) {
		complete(&ticker->done);
		return HRTIMER_NORESTART;
	}
	ticker->forwarded += hrtimer_forward_now(timer, ticker->interval);
	return HRTIMER_RESTART;
}

static void hrtimers(void)
{
	struct ticker ticker = { .runs = ATOMIC_INIT(0), .interval = 20 * NSEC_PER_USEC };
	ktime_t begin = ktime_get(), expires = ktime_add_us(begin, 50);

	init_completion(&ticker.done);
	hrtimer_setup(&ticker.timer, tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	CHECK(!hrtimer_active(&ticker.timer) && hrtimer_cancel(&ticker.timer) == 0);
	hrtimer_start(&ticker.timer, us_to_ktime(100), HRTIMER_MODE_REL);
	wait_for_completion(&ticker.done);
	CHECK(atomic_read(&ticker.runs) == 5 && ticker.forwarded >= 4);
	/* Never too early: 100 us and four intervals have passed. */
	CHECK(ktime_us_delta(ktime_get(), begin) >= 180);
	CHECK(hrtimer_cancel(&ticker.timer) == 0 && !hrtimer_is_queued(&ticker.timer));
	hrtimer_start(&ticker.timer, ktime_set(3600, 0), HRTIMER_MODE_REL_PINNED);
	CHECK(hrtimer_active(&ticker.timer) && hrtimer_get_remaining(&ticker.timer) > 0);
	CHECK(hrtimer_try_to_cancel(&ticker.timer) == 1 && hrtimer_try_to_cancel(&ticker.timer) == 0);
	hrtimer_set_expires(&ticker.timer, 1000);
	CHECK(hrtimer_forward(&ticker.timer, 3500, 1000) == 3 && hrtimer_get_expires(&ticker.timer) == 4000);
	CHECK(hrtimer_forward(&ticker.timer, 3500, 1000) == 0);
	/*
	 * Armed again for a time in the past. The function ends at the fifth run, so it continues
	 * from the sixth.
	 */
	hrtimer_start(&ticker.timer, 1, HRTIMER_MODE_ABS);
	while (atomic_read(&ticker.runs) < 8)
		cond_resched();
	hrtimer_cancel(&ticker.timer);
	CHECK(!hrtimer_active(&ticker.timer));
	set_current_state(TASK_UNINTERRUPTIBLE);
	CHECK(schedule_hrtimeout(&expires, HRTIMER_MODE_ABS) == 0 && ktime_get() >= expires && task_is_running(current));
	destroy_hrtimer_on_stack(&ticker.timer);
}

struct irq_and_count {
	struct irq_work work;
	atomic_t runs;
};

static void on_irq_work(struct irq_work *work)
{
	atomic_inc(&container_of(work, struct irq_and_count, work)->runs);
	wake_up_all(&queue);
}

static void irq_works(void)
{
	struct irq_and_count of = { .runs = ATOMIC_INIT(0) };

	init_irq_work(&of.work, on_irq_work);
	CHECK(wait_event_hrtimeout(queue, atomic_read(&of.runs) == 1, 50 * NSEC_PER_USEC) == -ETIME);
	CHECK(irq_work_queue(&of.work));
	CHECK(wait_event_hrtimeout(queue, atomic_read(&of.runs) == 1, 3600 * NSEC_PER_SEC) == 0);
	irq_work_sync(&of.work);
	CHECK(!irq_work_is_busy(&of.work) && irq_work_queue_on(&of.work, raw_smp_processor_id()));
	irq_work_sync(&of.work);
	CHECK(atomic_read(&of.runs) == 2 && !irq_work_is_pending(&of.work));
	touch_softlockup_watchdog();
}

struct task_and_count {
	struct tasklet_struct tasklet;
	atomic_t runs;
};

static void new_kind(struct tasklet_struct *tasklet)
{
	struct task_and_count *of = from_tasklet(of, tasklet, tasklet);

	atomic_inc(&of->runs);
}

static void old_kind(unsigned long data)
{
	atomic_add(100, (atomic_t *)data);
}

static void tasklets(void)
{
	struct task_and_count of = { .runs = ATOMIC_INIT(0) };
	struct tasklet_struct old;

	tasklet_setup(&of.tasklet, new_kind);
	tasklet_schedule(&of.tasklet);
	tasklet_kill(&of.tasklet);
	CHECK(atomic_read(&of.runs) == 1);
	tasklet_init(&old, old_kind, (unsigned long)&of.runs);
	tasklet_hi_schedule(&old);
	tasklet_kill(&old);
	CHECK(atomic_read(&of.runs) == 101);
}

DEFINE_STATIC_SRCU(domain);
static DEFINE_SEQLOCK(pair_lock);
static DEFINE_RWLOCK(rw);
static u64 left_half, right_half;
static int alive = 1;
static int *shared = &alive;

static int reader(void *data)
{
	int wrong = 0;

	while (!kthread_should_stop()) {
		unsigned int seq;
		u64 a, b;
		int index = srcu_read_lock(&domain), *p = srcu_dereference(shared, &domain);

		yield();
		wrong += READ_ONCE(*p) != 1;
		srcu_read_unlock(&domain, index);
		do {
			seq = read_seqbegin(&pair_lock);
			a = READ_ONCE(left_half);
			b = READ_ONCE(right_half);
		} while (read_seqretry(&pair_lock, seq));
		wrong += a + b != 0;
		atomic_inc((atomic_t *)data);
	}
	return wrong;
}

static void domains(void)
{
	atomic_t reads[2] = { ATOMIC_INIT(0), ATOMIC_INIT(0) };
	struct task_struct *task[2];
	int objects[2] = { 1, 1 }, round, i;
	unsigned long flags;

	rcu_assign_pointer(shared, &objects[0]);
	for (i = 0; i < 2; i++)
		task[i] = kthread_run(reader, &reads[i], "reader/%d", i);
	for (round = 0; round < 200 || atomic_read(&reads[0]) < 50 || atomic_read(&reads[1]) < 50; round++) {
		int *old = shared;

		WRITE_ONCE(objects[old == &objects[0]], 1);
		rcu_assign_pointer(shared, &objects[old == &objects[0]]);
		synchronize_srcu(&domain);
		/* No reader uses it any more. */
		WRITE_ONCE(*old, 0);
		write_seqlock_irqsave(&pair_lock, flags);
		WRITE_ONCE(left_half, (u64)round);
		WRITE_ONCE(right_half, 0 - (u64)round);
		write_sequnlock_irqrestore(&pair_lock, flags);
	}
	for (i = 0; i < 2; i++)
		CHECK(kthread_stop(task[i]) == 0);
	CHECK(read_trylock(&rw) && read_trylock(&rw) && !write_trylock(&rw));
	read_unlock(&rw);
	read_unlock(&rw);
	CHECK(write_trylock(&rw) && !read_trylock(&rw));
	write_unlock(&rw);
}

static DEFINE_KTHREAD_WORKER(static_worker);
static DEFINE_KTHREAD_WORKER(unused_worker);
static atomic_t worked;

static void work_once(struct kthread_work *work)
{
	(void)work;
	atomic_inc(&worked);
}

static void workers(void)
{
	struct kthread_worker *made;
	DEFINE_KTHREAD_WORK(early, work_once);
	DEFINE_KTHREAD_WORK(late, work_once);
	unsigned int cpu = cpumask_first(cpu_online_mask);
	struct task_struct *task, *other;
	struct sched_param param = { 0 };
	char name[TASK_COMM_LEN];

	CHECK(kthread_queue_work(&static_worker, &early));
	task = kthread_run(kthread_worker_fn, &static_worker, "static");
	other = kthread_run(kthread_worker_fn, &unused_worker, "unused");
	kthread_flush_work(&early);
	CHECK(atomic_read(&worked) == 1 && kthread_queue_work(&static_worker, &late));
	kthread_flush_worker(&static_worker);
	CHECK(atomic_read(&worked) == 2);
	kthread_stop(task);
	kthread_stop(other);
	made = kthread_run_worker_on_cpu((int)cpu, 0, "made/%u");
	snprintf(name, sizeof(name), "made/%u", cpu);
	CHECK(!IS_ERR(made) && strcmp(made->task->comm, name) == 0 && kthread_queue_work(made, &early));
	kthread_flush_worker(made);
	CHECK(atomic_read(&worked) == 3);
	kthread_destroy_worker(made);
	CHECK(sched_setscheduler(current, SCHED_NORMAL, &param) == 0 && sched_setscheduler(current, 99, &param) == -EINVAL);
	CHECK(task_nice(current) >= MIN_NICE && task_nice(current) <= MAX_NICE && NICE_TO_PRIO(0) == DEFAULT_PRIO);
}

static int __init waiting_init(void)
{
	woken();
	locked();
	hrtimers();
	tasklets();
	irq_works();
	domains();
	workers();
	return checked();
}
module_init(waiting_init)
MODULE_LICENSE("Dual MIT/GPL");
