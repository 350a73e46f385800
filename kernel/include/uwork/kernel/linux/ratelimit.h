/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Rate limits: at most `burst` events in an interval. pr_*_ratelimited() print every message. */
#ifndef UWORK_KERNEL_LINUX_RATELIMIT_H
#define UWORK_KERNEL_LINUX_RATELIMIT_H

#include <linux/jiffies.h>
#include <linux/printk.h>
#include <linux/spinlock.h>

#define DEFAULT_RATELIMIT_INTERVAL (5 * HZ)
#define DEFAULT_RATELIMIT_BURST 10

struct ratelimit_state {
	raw_spinlock_t lock;
	/* In jiffies; 0 disables the limit. */
	int interval;
	int burst;
	int printed;
	int missed;
	unsigned long begin;
};

#define RATELIMIT_STATE_INIT(name, interval, burst) { __RAW_SPIN_LOCK_UNLOCKED(name), (interval), (burst), 0, 0, 0 }
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
		rs->missed = 0;
	}
	may = rs->printed < rs->burst;
	if (may)
		rs->printed++;
	else
		rs->missed++;
	raw_spin_unlock(&rs->lock);
	return may;
}

#endif
