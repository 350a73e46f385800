/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Timers with nanosecond resolution, on the same queue as those of linux/timer.h. A function runs
 * in the BH context of the CPU on which the timer expires, so it must not wait.
 */
#ifndef UWORK_KERNEL_LINUX_HRTIMER_H
#define UWORK_KERNEL_LINUX_HRTIMER_H

#include "../uw_kernel.h"
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/wait.h>

enum hrtimer_restart {
	HRTIMER_NORESTART,
	HRTIMER_RESTART
};

enum hrtimer_mode {
	HRTIMER_MODE_ABS = 0x00,
	HRTIMER_MODE_REL = 0x01,
	HRTIMER_MODE_PINNED = 0x02,
	HRTIMER_MODE_SOFT = 0x04,
	HRTIMER_MODE_HARD = 0x08,
	HRTIMER_MODE_ABS_PINNED = HRTIMER_MODE_ABS | HRTIMER_MODE_PINNED,
	HRTIMER_MODE_REL_PINNED = HRTIMER_MODE_REL | HRTIMER_MODE_PINNED,
	HRTIMER_MODE_ABS_SOFT = HRTIMER_MODE_ABS | HRTIMER_MODE_SOFT,
	HRTIMER_MODE_REL_SOFT = HRTIMER_MODE_REL | HRTIMER_MODE_SOFT,
	HRTIMER_MODE_ABS_PINNED_SOFT = HRTIMER_MODE_ABS_PINNED | HRTIMER_MODE_SOFT,
	HRTIMER_MODE_REL_PINNED_SOFT = HRTIMER_MODE_REL_PINNED | HRTIMER_MODE_SOFT,
	HRTIMER_MODE_ABS_HARD = HRTIMER_MODE_ABS | HRTIMER_MODE_HARD,
	HRTIMER_MODE_REL_HARD = HRTIMER_MODE_REL | HRTIMER_MODE_HARD
};

struct hrtimer {
	struct uw_delayed_work uw_item;
	enum hrtimer_restart (*function)(struct hrtimer *timer);
	/* In the time of the timer's clock. */
	ktime_t uw_expires;
	int uw_clock;
};

#ifdef __cplusplus
extern "C" {
#endif
void uw_kernel_hrtimer_run(struct uw_work *item);
/* Arms the timer for uw_expires; with `pinned`, on this CPU. */
void uw_kernel_hrtimer_arm(struct hrtimer *timer, bool pinned);
#ifdef __cplusplus
}
#endif

/* The clock is CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME or CLOCK_TAI. */
static inline void hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	(void)mode;
	uw_delayed_work_init(&timer->uw_item, uw_kernel_hrtimer_run, 0, 0);
	timer->function = function;
	timer->uw_expires = 0;
	timer->uw_clock = clock;
}

/* The interface of older kernels: the caller sets the function. */
static inline void hrtimer_init(struct hrtimer *timer, clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_setup(timer, NULL, clock, mode);
}

#define hrtimer_setup_on_stack(timer, function, clock, mode) hrtimer_setup((timer), (function), (clock), (mode))
#define hrtimer_init_on_stack(timer, clock, mode) hrtimer_init((timer), (clock), (mode))
#define hrtimer_update_function(timer, to) ((void)((timer)->function = (to)))

static inline void destroy_hrtimer_on_stack(struct hrtimer *timer)
{
	uw_debug_check_freed(timer, sizeof(*timer));
}

static inline ktime_t hrtimer_cb_get_time(const struct hrtimer *timer)
{
	return (ktime_t)uw_kernel_clock_ns(timer->uw_clock);
}

/* If the timer is armed, changes its expiry time. */
static inline void hrtimer_start(struct hrtimer *timer, ktime_t time, enum hrtimer_mode mode)
{
	bool is_relative = ((unsigned int)mode & HRTIMER_MODE_REL) != 0;

	timer->uw_expires = is_relative ? ktime_add_safe(hrtimer_cb_get_time(timer), time) : time;
	uw_kernel_hrtimer_arm(timer, ((unsigned int)mode & HRTIMER_MODE_PINNED) != 0);
}

/* The timer expires as early as the range permits. Each timer wakes its CPU by itself. */
static inline void hrtimer_start_range_ns(struct hrtimer *timer, ktime_t time, u64 slack_ns, enum hrtimer_mode mode)
{
	(void)slack_ns;
	hrtimer_start(timer, time, mode);
}

static inline void hrtimer_restart(struct hrtimer *timer)
{
	uw_kernel_hrtimer_arm(timer, false);
}

#define hrtimer_start_expires(timer, mode) \
	uw_kernel_hrtimer_arm((timer), ((unsigned int)(mode) & HRTIMER_MODE_PINNED) != 0)

/*
 * Returns 1 if the timer was armed. Waits for a run in progress, so the timer's own function must
 * not call it.
 */
static inline int hrtimer_cancel(struct hrtimer *timer)
{
	int answer = uw_work_cancel_sync(&timer->uw_item.work);

	if (answer < 0)
		uw_kernel_complain(answer);
	return answer > 0;
}

/*
 * Returns -1 if the function is running, so that the timer cannot be cancelled; otherwise 1 if it
 * was armed and 0 if not.
 */
static inline int hrtimer_try_to_cancel(struct hrtimer *timer)
{
	if (uw_work_cancel(&timer->uw_item.work) > 0)
		return 1;
	return uw_work_busy(&timer->uw_item.work) & UW_BUSY_RUNNING ? -1 : 0;
}

static inline bool hrtimer_is_queued(const struct hrtimer *timer)
{
	return uw_work_is_pending(&timer->uw_item.work) > 0;
}

static inline bool hrtimer_callback_running(const struct hrtimer *timer)
{
	return (uw_work_busy(&timer->uw_item.work) & UW_BUSY_RUNNING) != 0;
}

static inline bool hrtimer_active(const struct hrtimer *timer)
{
	return uw_work_busy(&timer->uw_item.work) > 0;
}

static inline ktime_t hrtimer_get_expires(const struct hrtimer *timer)
{
	return timer->uw_expires;
}

#define hrtimer_get_softexpires(timer) hrtimer_get_expires(timer)
#define hrtimer_get_expires_ns(timer) ktime_to_ns(hrtimer_get_expires(timer))

static inline void hrtimer_set_expires(struct hrtimer *timer, ktime_t time)
{
	timer->uw_expires = time;
}

static inline void hrtimer_add_expires_ns(struct hrtimer *timer, u64 ns)
{
	timer->uw_expires = ktime_add_ns(timer->uw_expires, ns);
}

/* Negative if the timer has expired. */
static inline ktime_t hrtimer_expires_remaining(const struct hrtimer *timer)
{
	return timer->uw_expires - hrtimer_cb_get_time(timer);
}

#define hrtimer_get_remaining(timer) hrtimer_expires_remaining(timer)

/*
 * Moves the expiry by whole intervals to after `now`. Returns how many; 0 if it is after `now`
 * already. Not allowed for an armed timer.
 */
static inline u64 hrtimer_forward(struct hrtimer *timer, ktime_t now, ktime_t interval)
{
	ktime_t late = now - timer->uw_expires;
	u64 intervals;

	if (late < 0)
		return 0;
	if (interval < 1)
		interval = 1;
	intervals = (u64)(late / interval) + 1;
	timer->uw_expires += (ktime_t)intervals * interval;
	return intervals;
}

static inline u64 hrtimer_forward_now(struct hrtimer *timer, ktime_t interval)
{
	return hrtimer_forward(timer, hrtimer_cb_get_time(timer), interval);
}

/*
 * Returns 0 if the time has passed (NULL: no limit), and -EINTR if the task was woken. The caller
 * sets the task's state before.
 */
static inline int schedule_hrtimeout(ktime_t *expires, enum hrtimer_mode mode)
{
	struct task_struct *task = uw_kernel_current();
	ktime_t end = expires ? *expires : KTIME_MAX;
	u32 state;

	if (expires && ((unsigned int)mode & HRTIMER_MODE_REL))
		end = ktime_add_safe(ktime_get(), end);
	while ((state = __atomic_load_n(&task->__state, __ATOMIC_SEQ_CST)) != TASK_RUNNING) {
		ktime_t left = end - ktime_get();

		if (left <= 0) {
			__set_current_state(TASK_RUNNING);
			return 0;
		}
		uw_kernel_wait(&task->__state, state, end == KTIME_MAX ? UW_KERNEL_FOREVER : (u64)left);
	}
	return -EINTR;
}

/* Ends as early as the range permits. */
static inline int schedule_hrtimeout_range(ktime_t *expires, u64 slack_ns, enum hrtimer_mode mode)
{
	(void)slack_ns;
	return schedule_hrtimeout(expires, mode);
}

/* 0 if the condition holds, -ETIME after the timeout. */
#define wait_event_hrtimeout(wq_head, condition, timeout) \
	__extension__({ \
		ktime_t uw_end = ktime_add_safe(ktime_get(), (timeout)); \
		(condition) ? 0 : (int)___wait_event(wq_head, condition, TASK_UNINTERRUPTIBLE, 0, 0, \
			if (schedule_hrtimeout(&uw_end, HRTIMER_MODE_ABS) == 0) { \
				__ret = (condition) ? 0 : -ETIME; \
				break; \
			}); \
	})
#define wait_event_interruptible_hrtimeout(wq_head, condition, timeout) wait_event_hrtimeout(wq_head, condition, timeout)

#endif
