/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the tests of uwork.h: an item of each kind that counts its runs, queues, CPUs. */
#ifndef ITEM_H
#define ITEM_H

#include <stdatomic.h>
#include <string.h>

#include <uwork.h>

#include "check.h"

static const uint64_t HOUR = 3600ull * 1000 * 1000 * 1000;

struct item {
	struct uw_work work;
	struct uw_delayed_work delayed;
	struct uw_rcu_work rcu;
	atomic_int runs;
};

static inline void run(struct uw_work *work)
{
	struct item *item = UW_CONTAINER_OF(work, struct item, work);
	char text[32];

	CHECK(uw_current_work() == work);
	CHECK(uw_set_worker_desc("counting") == 1);
	CHECK(uw_work_description(work, text, sizeof(text)) == 8 && strcmp(text, "counting") == 0);
	CHECK(uw_work_busy(work) & UW_BUSY_RUNNING);
	atomic_fetch_add(&item->runs, 1);
}

static inline void run_delayed(struct uw_work *work)
{
	atomic_fetch_add(&UW_CONTAINER_OF(uw_to_delayed_work(work), struct item, delayed)->runs, 1);
}

static inline void run_rcu(struct uw_work *work)
{
	atomic_fetch_add(&UW_CONTAINER_OF(uw_to_rcu_work(work), struct item, rcu)->runs, 1);
}

static inline void init(struct item *item)
{
	uw_work_init(&item->work, run);
	uw_delayed_work_init(&item->delayed, run_delayed, 0, 0);
	uw_rcu_work_init(&item->rcu, run_rcu);
	atomic_store(&item->runs, 0);
}

static inline struct uw_queue *make(const char *name)
{
	struct uw_queue *queue = uw_queue_create(name, UW_UNBOUND | UW_SYSFS, 0);

	CHECK(queue);
	return queue;
}

/* A CPU that the process may use. */
static inline int first_cpu(void)
{
	unsigned long mask[16] = { 0 };
	int cpu = 0;

	CHECK(uw_cpus(UW_CPUS_ALLOWED, mask, sizeof(mask)) > 0);
	while (!(mask[(size_t)cpu / (8 * sizeof(long))] >> (size_t)cpu % (8 * sizeof(long)) & 1))
		cpu++;
	return cpu;
}

#endif
