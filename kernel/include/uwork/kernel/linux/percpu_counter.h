/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counters with a part for each CPU. A part that reaches the batch is moved into the common count.
 */
#ifndef UWORK_KERNEL_LINUX_PERCPU_COUNTER_H
#define UWORK_KERNEL_LINUX_PERCPU_COUNTER_H

#include <linux/percpu.h>
#include <linux/spinlock.h>

struct percpu_counter {
	/* Held while an amount moves from a part to the count, so that a sum sees it once. */
	raw_spinlock_t lock;
	s64 count;
	s64 __percpu *counters;
};

static inline s32 uw_kernel_counter_batch(void)
{
	return (s32)(num_online_cpus() > 16 ? 2 * num_online_cpus() : 32);
}

#define percpu_counter_batch uw_kernel_counter_batch()

/* 0 or -ENOMEM. */
static inline int percpu_counter_init(struct percpu_counter *fbc, s64 amount, gfp_t gfp)
{
	(void)gfp;
	raw_spin_lock_init(&fbc->lock);
	fbc->count = amount;
	fbc->counters = alloc_percpu(s64);
	return fbc->counters ? 0 : -ENOMEM;
}

static inline bool percpu_counter_initialized(const struct percpu_counter *fbc)
{
	return fbc->counters != NULL;
}

static inline void percpu_counter_destroy(struct percpu_counter *fbc)
{
	free_percpu(fbc->counters);
	fbc->counters = NULL;
}

static inline void percpu_counter_add_batch(struct percpu_counter *fbc, s64 amount, s32 batch)
{
	/* The thread may migrate: an atomic operation on the part of the CPU where it was. */
	s64 *part = this_cpu_ptr(fbc->counters);
	s64 now = __atomic_add_fetch(part, amount, __ATOMIC_RELAXED);

	if (now < batch && now > -(s64)batch)
		return;
	raw_spin_lock(&fbc->lock);
	__atomic_fetch_add(&fbc->count, __atomic_exchange_n(part, 0, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	raw_spin_unlock(&fbc->lock);
}

static inline void percpu_counter_add(struct percpu_counter *fbc, s64 amount)
{
	percpu_counter_add_batch(fbc, amount, percpu_counter_batch);
}

static inline void percpu_counter_add_local(struct percpu_counter *fbc, s64 amount)
{
	percpu_counter_add(fbc, amount);
}

static inline void percpu_counter_sub(struct percpu_counter *fbc, s64 amount)
{
	percpu_counter_add(fbc, -amount);
}

static inline void percpu_counter_sub_local(struct percpu_counter *fbc, s64 amount)
{
	percpu_counter_add(fbc, -amount);
}

static inline void percpu_counter_inc(struct percpu_counter *fbc)
{
	percpu_counter_add(fbc, 1);
}

static inline void percpu_counter_dec(struct percpu_counter *fbc)
{
	percpu_counter_add(fbc, -1);
}

/* Without the parts. */
static inline s64 percpu_counter_read(const struct percpu_counter *fbc)
{
	return __atomic_load_n(&fbc->count, __ATOMIC_RELAXED);
}

static inline s64 percpu_counter_read_positive(const struct percpu_counter *fbc)
{
	s64 count = percpu_counter_read(fbc);

	return count > 0 ? count : 0;
}

static inline s64 uw_kernel_counter_sum(const struct percpu_counter *fbc)
{
	s64 sum = percpu_counter_read(fbc);
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		sum += __atomic_load_n(per_cpu_ptr(fbc->counters, cpu), __ATOMIC_RELAXED);
	return sum;
}

static inline s64 percpu_counter_sum(struct percpu_counter *fbc)
{
	s64 sum;

	raw_spin_lock(&fbc->lock);
	sum = uw_kernel_counter_sum(fbc);
	raw_spin_unlock(&fbc->lock);
	return sum;
}

static inline s64 percpu_counter_sum_positive(struct percpu_counter *fbc)
{
	s64 sum = percpu_counter_sum(fbc);

	return sum > 0 ? sum : 0;
}

static inline void percpu_counter_set(struct percpu_counter *fbc, s64 amount)
{
	unsigned int cpu;

	raw_spin_lock(&fbc->lock);
	for_each_possible_cpu(cpu)
		__atomic_store_n(per_cpu_ptr(fbc->counters, cpu), 0, __ATOMIC_RELAXED);
	__atomic_store_n(&fbc->count, amount, __ATOMIC_RELAXED);
	raw_spin_unlock(&fbc->lock);
}

/* Moves all parts into the count. */
static inline void percpu_counter_sync(struct percpu_counter *fbc)
{
	unsigned int cpu;

	raw_spin_lock(&fbc->lock);
	for_each_possible_cpu(cpu)
		__atomic_fetch_add(&fbc->count,
				   __atomic_exchange_n(per_cpu_ptr(fbc->counters, cpu), 0, __ATOMIC_RELAXED),
				   __ATOMIC_RELAXED);
	raw_spin_unlock(&fbc->lock);
}

/* -1, 0 or 1. Sums the parts only if they can decide. */
static inline int __percpu_counter_compare(struct percpu_counter *fbc, s64 with, s32 batch)
{
	s64 count = percpu_counter_read(fbc);
	s64 distance = count > with ? count - with : with - count;

	if (distance <= (s64)batch * (s64)nr_cpu_ids)
		count = percpu_counter_sum(fbc);
	return count > with ? 1 : count < with ? -1 : 0;
}

static inline int percpu_counter_compare(struct percpu_counter *fbc, s64 with)
{
	return __percpu_counter_compare(fbc, with, percpu_counter_batch);
}

#endif
