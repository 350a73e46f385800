/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Rate limits: at most `burst` events in an interval. pr_*_ratelimited() print every message. */
#ifndef UWORK_KERNEL_LINUX_RATELIMIT_H
#define UWORK_KERNEL_LINUX_RATELIMIT_H

#include <linux/bug.h>
#include <linux/jiffies.h>
#include <linux/printk.h>
#include <linux/spinlock.h>

#define DEFAULT_RATELIMIT_INTERVAL (5 * HZ)
#define DEFAULT_RATELIMIT_BURST 10

/* ratelimit_state_exit() reports the events beyond the limit. Without this they are counted but not reported. */
#define RATELIMIT_MSG_ON_RELEASE 1ul

struct ratelimit_state {
	raw_spinlock_t lock;
	/* In jiffies; 0 disables the limit. */
	int interval;
	int burst;
	int printed;
	int missed;
	unsigned long begin;
	unsigned long flags;
};

#define RATELIMIT_STATE_INIT(name, interval, burst) { __RAW_SPIN_LOCK_UNLOCKED(name), (interval), (burst), 0, 0, 0, 0 }
#define DEFINE_RATELIMIT_STATE(name, interval, burst) \
	struct ratelimit_state name = RATELIMIT_STATE_INIT(name, interval, burst)

static inline void ratelimit_state_init(struct ratelimit_state *rs, int interval, int burst)
{
	raw_spin_lock_init(&rs->lock);
	rs->interval = interval;
	rs->burst = burst;
	rs->printed = 0;
	rs->missed = 0;
	rs->begin = 0;
	rs->flags = 0;
}

static inline void ratelimit_default_init(struct ratelimit_state *rs)
{
	ratelimit_state_init(rs, DEFAULT_RATELIMIT_INTERVAL, DEFAULT_RATELIMIT_BURST);
}

static inline void ratelimit_set_flags(struct ratelimit_state *rs, unsigned long flags)
{
	rs->flags = flags;
}

static inline int ratelimit_state_get_miss(struct ratelimit_state *rs)
{
	return READ_ONCE(rs->missed);
}

/* The count since the last reset. */
static inline int ratelimit_state_reset_miss(struct ratelimit_state *rs)
{
	int missed;

	raw_spin_lock(&rs->lock);
	missed = rs->missed;
	WRITE_ONCE(rs->missed, 0);
	raw_spin_unlock(&rs->lock);
	return missed;
}

static inline void ratelimit_state_exit(struct ratelimit_state *rs)
{
	int missed = rs->flags & RATELIMIT_MSG_ON_RELEASE ? ratelimit_state_reset_miss(rs) : 0;

	if (missed)
		pr_warn("%d events beyond the rate limit\n", missed);
}

/* 1 if the event is within the limit. */
static inline int __ratelimit(struct ratelimit_state *rs)
{
	int may;

	if (!rs->interval)
		return 1;
	raw_spin_lock(&rs->lock);
	if (!rs->begin || time_after(uw_kernel_jiffies(), rs->begin + (unsigned long)rs->interval)) {
		rs->begin = uw_kernel_jiffies();
		rs->printed = 0;
		if (!(rs->flags & RATELIMIT_MSG_ON_RELEASE))
			WRITE_ONCE(rs->missed, 0);
	}
	may = rs->printed < rs->burst;
	if (may)
		rs->printed++;
	else
		WRITE_ONCE(rs->missed, rs->missed + 1);
	raw_spin_unlock(&rs->lock);
	return may;
}

/* The value is that of the condition. */
#define WARN_ON_RATELIMIT(condition, state) \
	__extension__({ \
		bool uw_is = !!(condition); \
		if (unlikely(uw_is) && __ratelimit(state)) \
			uw_kernel_warn(__FILE__, __LINE__, "%s", #condition); \
		uw_is; \
	})
#define WARN_RATELIMIT(condition, ...) \
	__extension__({ \
		static DEFINE_RATELIMIT_STATE(uw_state, DEFAULT_RATELIMIT_INTERVAL, DEFAULT_RATELIMIT_BURST); \
		bool uw_is = !!(condition); \
		if (unlikely(uw_is) && __ratelimit(&uw_state)) \
			uw_kernel_warn(__FILE__, __LINE__, __VA_ARGS__); \
		uw_is; \
	})

/* 1 at most ten times in five seconds, for each place in the source. */
#define printk_ratelimit() \
	__extension__({ \
		static DEFINE_RATELIMIT_STATE(uw_state, DEFAULT_RATELIMIT_INTERVAL, DEFAULT_RATELIMIT_BURST); \
		__ratelimit(&uw_state); \
	})

#endif
