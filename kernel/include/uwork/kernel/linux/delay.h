/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Delays. */
#ifndef UWORK_KERNEL_LINUX_DELAY_H
#define UWORK_KERNEL_LINUX_DELAY_H

#include <linux/jiffies.h>
#include <linux/ktime.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Sleeps at least this long, as a wait that is declared to the pool. */
void uw_kernel_sleep_ns(uint64_t ns);
#ifdef __cplusplus
}
#endif

static inline void msleep(unsigned int ms)
{
	uw_kernel_sleep_ns((uint64_t)ms * 1000000);
}

static inline unsigned long msleep_interruptible(unsigned int ms)
{
	msleep(ms);
	return 0;
}

static inline void ssleep(unsigned int seconds)
{
	uw_kernel_sleep_ns((uint64_t)seconds * 1000000000);
}

static inline void usleep_range(unsigned long least, unsigned long most)
{
	(void)most;
	uw_kernel_sleep_ns((uint64_t)least * 1000);
}

#define usleep_idle_range(least, most) usleep_range((least), (most))
#define usleep_range_state(least, most, state) ((void)(state), usleep_range((least), (most)))

static inline void fsleep(unsigned long us)
{
	uw_kernel_sleep_ns((uint64_t)us * 1000);
}

static inline void ndelay(unsigned long ns)
{
	uint64_t end = uw_kernel_now_ns() + ns;

	while (uw_kernel_now_ns() < end)
		cpu_relax();
}

static inline void udelay(unsigned long us)
{
	ndelay(us * 1000);
}

static inline void mdelay(unsigned long ms)
{
	ndelay(ms * 1000000);
}

#endif
