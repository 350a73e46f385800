/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Statistics of 64 bits with one writer at a time. Each value is read and written whole, as in a
 * 64-bit kernel; several values of one update may be read apart. So
 * u64_stats_fetch_retry() always returns false.
 */
#ifndef UWORK_KERNEL_LINUX_U64_STATS_SYNC_H
#define UWORK_KERNEL_LINUX_U64_STATS_SYNC_H

#include <linux/compiler.h>
#include <linux/types.h>

typedef struct {
	uint64_t uw_value;
} u64_stats_t;

struct u64_stats_sync {
	char uw_unused;
};

static inline void u64_stats_init(struct u64_stats_sync *sync)
{
	(void)sync;
}

static inline void u64_stats_update_begin(struct u64_stats_sync *sync)
{
	(void)sync;
}

static inline void u64_stats_update_end(struct u64_stats_sync *sync)
{
	(void)sync;
}

static inline unsigned long u64_stats_update_begin_irqsave(struct u64_stats_sync *sync)
{
	(void)sync;
	return 0;
}

static inline void u64_stats_update_end_irqrestore(struct u64_stats_sync *sync, unsigned long flags)
{
	(void)sync;
	(void)flags;
}

static inline unsigned int u64_stats_fetch_begin(const struct u64_stats_sync *sync)
{
	(void)sync;
	return 0;
}

static inline bool u64_stats_fetch_retry(const struct u64_stats_sync *sync, unsigned int start)
{
	(void)sync;
	(void)start;
	return false;
}

static inline uint64_t u64_stats_read(const u64_stats_t *p)
{
	return __atomic_load_n(&p->uw_value, __ATOMIC_RELAXED);
}

static inline void u64_stats_set(u64_stats_t *p, uint64_t value)
{
	__atomic_store_n(&p->uw_value, value, __ATOMIC_RELAXED);
}

/* The caller is the only writer. */
static inline void u64_stats_add(u64_stats_t *p, unsigned long value)
{
	u64_stats_set(p, u64_stats_read(p) + value);
}

static inline void u64_stats_sub(u64_stats_t *p, int64_t value)
{
	u64_stats_set(p, u64_stats_read(p) - (uint64_t)value);
}

static inline void u64_stats_inc(u64_stats_t *p)
{
	u64_stats_add(p, 1);
}

#endif
