/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Timers. Independent of the other headers, except for uwork.h and the uw_kernel headers. */
#ifndef UWORK_KERNEL_LINUX_TIMER_H
#define UWORK_KERNEL_LINUX_TIMER_H

/* Declares another timer_delete(): see ../time.h, and there for modules. */
#ifndef UWORK_KERNEL_ENVIRONMENT
#include <time.h>
#endif

/* Also true for a copy of this file in a folder of the program. */
#if defined(__has_include)
#if !__has_include("../uw_kernel_time.h")
#define UW_KERNEL_IS_COPY
#endif
#endif
#ifdef UW_KERNEL_IS_COPY
#include <uwork/kernel/uw_kernel_time.h>
#else
#include "../uw_kernel_time.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An item with a timer, on a queue of the library. Its function runs in the BH context of the CPU
 * on which the timer expires, so it must not wait. The program may read `expires`, and may set it
 * before add_timer().
 */
struct timer_list {
	struct uw_delayed_work uw_item;
	void (*function)(struct timer_list *timer);
	unsigned long expires;
	unsigned int flags;
};

#define TIMER_CPUMASK 0x0003ffffu
#define TIMER_MIGRATING 0x00040000u
#define TIMER_DEFERRABLE 0x00080000u
#define TIMER_PINNED 0x00100000u
#define TIMER_IRQSAFE 0x00200000u

void uw_kernel_timer_run(struct uw_work *item);
/* Returns 1 if the timer was armed. `hz` is the number of ticks per second. */
int uw_kernel_timer_arm(struct timer_list *timer, unsigned long hz, int cpu);

#define __TIMER_INITIALIZER(function, flags) \
	{ UW_DELAYED_WORK_INIT(uw_kernel_timer_run), (function), 0, (flags) }
#define DEFINE_TIMER(name, function) struct timer_list name = __TIMER_INITIALIZER(function, 0)

static inline void timer_setup(struct timer_list *timer, void (*function)(struct timer_list *), unsigned int flags)
{
	uw_delayed_work_init(&timer->uw_item, uw_kernel_timer_run, flags & TIMER_DEFERRABLE ? UW_DEFERRABLE : 0, 0);
	timer->function = function;
	timer->expires = 0;
	timer->flags = flags;
}

#define timer_setup_on_stack(timer, function, flags) timer_setup((timer), (function), (flags))
#define destroy_timer_on_stack(timer) ((void)(timer))
#define timer_destroy_on_stack(timer) ((void)(timer))

static inline bool timer_pending(const struct timer_list *timer)
{
	return uw_work_is_pending(&timer->uw_item.work) > 0;
}

static inline int mod_timer(struct timer_list *timer, unsigned long expires)
{
	timer->expires = expires;
	return uw_kernel_timer_arm(timer, HZ, -1);
}

/* Changes the expiry only if the timer is armed. */
static inline int mod_timer_pending(struct timer_list *timer, unsigned long expires)
{
	if (!timer_pending(timer))
		return 0;
	timer->expires = expires;
	return uw_kernel_timer_arm(timer, HZ, -1);
}

/* Changes the expiry only to an earlier time. */
static inline int timer_reduce(struct timer_list *timer, unsigned long expires)
{
	if (timer_pending(timer) && (long)(expires - timer->expires) >= 0)
		return 1;
	timer->expires = expires;
	return uw_kernel_timer_arm(timer, HZ, -1);
}

/* Arms the timer for the time in `expires`. */
static inline void add_timer(struct timer_list *timer)
{
	uw_kernel_timer_arm(timer, HZ, -1);
}

static inline void add_timer_local(struct timer_list *timer)
{
	add_timer(timer);
}

static inline void add_timer_global(struct timer_list *timer)
{
	add_timer(timer);
}

static inline void add_timer_on(struct timer_list *timer, int cpu)
{
	uw_kernel_timer_arm(timer, HZ, cpu);
}

static inline int del_timer(struct timer_list *timer)
{
	return uw_work_cancel(&timer->uw_item.work) > 0;
}

/*
 * POSIX has another function of this name for its timers. The type of the argument selects one of
 * the two. Without ../time.h the C library's declaration has the name, so that there is a macro
 * only.
 */
#ifndef __cplusplus
int uw_kernel_posix_timer_delete(void *timerid) __asm__("timer_delete");
#undef timer_delete
#define UW_KERNEL_TIMER_DELETE
#if defined(UWORK_KERNEL_ENVIRONMENT) || defined(UW_KERNEL_HAS_WRAPPED_TIME)
static inline int timer_delete(struct timer_list *timer)
{
	return del_timer(timer);
}
#define timer_delete(timer) \
	_Generic((timer), struct timer_list *: (timer_delete), default: uw_kernel_posix_timer_delete)(timer)
#else
#define timer_delete(timer) \
	_Generic((timer), struct timer_list *: del_timer, default: uw_kernel_posix_timer_delete)(timer)
#endif
#endif

/* Waits for a run in progress, so the timer's own function must not call it. */
static inline int timer_delete_sync(struct timer_list *timer)
{
	int answer = uw_work_cancel_sync(&timer->uw_item.work);

	if (answer < 0)
		uw_kernel_complain(answer);
	return answer > 0;
}

/* The timer cannot be armed afterwards. */
static inline int timer_shutdown(struct timer_list *timer)
{
	return uw_work_disable(&timer->uw_item.work) > 0;
}

static inline int timer_shutdown_sync(struct timer_list *timer)
{
	int answer = uw_work_disable_sync(&timer->uw_item.work);

	if (answer < 0)
		uw_kernel_complain(answer);
	return answer > 0;
}

static inline int del_timer_sync(struct timer_list *timer)
{
	return timer_delete_sync(timer);
}

static inline int try_to_del_timer_sync(struct timer_list *timer)
{
	return del_timer(timer);
}

static inline int timer_delete_sync_try(struct timer_list *timer)
{
	return del_timer(timer);
}

/*
 * Rounds to full seconds, so that several timers expire together. A time whose full second is not
 * after NOW stays as it is.
 */
static inline unsigned long uw_kernel_round_jiffies(unsigned long j, unsigned long now, bool up)
{
	unsigned long excess = j % HZ, rounded = j - excess;

	if (excess != 0 && (up || excess >= HZ / 4))
		rounded += HZ;
	return (long)(now - rounded) < 0 ? rounded : j;
}

static inline unsigned long round_jiffies(unsigned long j)
{
	return uw_kernel_round_jiffies(j, UW_KERNEL_JIFFIES, false);
}

static inline unsigned long round_jiffies_up(unsigned long j)
{
	return uw_kernel_round_jiffies(j, UW_KERNEL_JIFFIES, true);
}

static inline unsigned long round_jiffies_relative(unsigned long delta)
{
	unsigned long now = UW_KERNEL_JIFFIES;

	return uw_kernel_round_jiffies(now + delta, now, false) - now;
}

static inline unsigned long round_jiffies_up_relative(unsigned long delta)
{
	unsigned long now = UW_KERNEL_JIFFIES;

	return uw_kernel_round_jiffies(now + delta, now, true) - now;
}

/* The forms that take a CPU, by which the kernel spreads the times. */
#define UW_ROUND_JIFFIES_OF(name) \
	static inline unsigned long __##name(unsigned long j, int cpu) \
	{ \
		(void)cpu; \
		return name(j); \
	}
UW_ROUND_JIFFIES_OF(round_jiffies)
UW_ROUND_JIFFIES_OF(round_jiffies_relative)
UW_ROUND_JIFFIES_OF(round_jiffies_up)
UW_ROUND_JIFFIES_OF(round_jiffies_up_relative)

#define from_timer(var, callback_timer, timer_fieldname) \
	UW_CONTAINER_OF(callback_timer, __typeof__(*(var)), timer_fieldname)
#define timer_container_of(var, callback_timer, timer_fieldname) from_timer(var, callback_timer, timer_fieldname)

#ifdef __cplusplus
}

static inline int timer_delete(struct timer_list *timer)
{
	return del_timer(timer);
}
#endif

#endif
