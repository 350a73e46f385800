/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sets of CPUs. */
#ifndef UWORK_KERNEL_LINUX_CPUMASK_H
#define UWORK_KERNEL_LINUX_CPUMASK_H

#include "../uw_kernel.h"
#include <linux/bitmap.h>

/* The number of bits of a mask, a multiple of the bits of a long. CPUs beyond it are ignored. */
#ifndef NR_CPUS
#define NR_CPUS 1024
#endif

typedef struct cpumask {
	unsigned long bits[NR_CPUS / (8 * sizeof(long))];
} cpumask_t;

/* Allocated separately, as in a kernel with CONFIG_CPUMASK_OFFSTACK. */
typedef struct cpumask *cpumask_var_t;

#ifdef __cplusplus
extern "C" {
#endif
/*
 * Fixed at the first call in the process: the CPUs that the process may use, and those that the
 * machine may have.
 */
const struct cpumask *uw_kernel_cpus_online(void);
const struct cpumask *uw_kernel_cpus_possible(void);
const struct cpumask *uw_kernel_cpu_mask(unsigned int cpu);
const struct cpumask *uw_kernel_node_mask(int node);
unsigned int uw_kernel_nr_cpus(void);
int uw_kernel_this_cpu(void);
bool uw_kernel_alloc_mask(cpumask_var_t *mask);
void uw_kernel_free_mask(cpumask_var_t mask);
/* Parses a CPU list ("0-3,8"), as bitmap_parselist(). Returns 0 or a negative errno value. */
int uw_kernel_parse_list(const char *text, struct cpumask *mask);
#ifdef __cplusplus
}
#endif

#define cpu_online_mask uw_kernel_cpus_online()
#define cpu_active_mask uw_kernel_cpus_online()
#define cpu_possible_mask uw_kernel_cpus_possible()
#define cpu_present_mask uw_kernel_cpus_possible()
#define cpu_all_mask uw_kernel_cpus_possible()
#define nr_cpu_ids uw_kernel_nr_cpus()
#define cpumask_of(cpu) uw_kernel_cpu_mask((unsigned int)(cpu))
#define cpumask_bits(mask) ((mask)->bits)
#define cpumask_size() sizeof(struct cpumask)
#define nr_cpumask_bits ((unsigned int)NR_CPUS)
#define CPU_MASK_ALL_PTR cpu_possible_mask

static inline bool alloc_cpumask_var(cpumask_var_t *mask, gfp_t flags)
{
	(void)flags;
	return uw_kernel_alloc_mask(mask);
}

static inline bool zalloc_cpumask_var(cpumask_var_t *mask, gfp_t flags)
{
	return alloc_cpumask_var(mask, flags);
}

static inline bool cpumask_available(cpumask_var_t mask)
{
	return mask != NULL;
}

static inline bool alloc_cpumask_var_node(cpumask_var_t *mask, gfp_t flags, int node)
{
	(void)node;
	return alloc_cpumask_var(mask, flags);
}

static inline bool zalloc_cpumask_var_node(cpumask_var_t *mask, gfp_t flags, int node)
{
	return alloc_cpumask_var_node(mask, flags, node);
}

static inline void free_cpumask_var(cpumask_var_t mask)
{
	uw_kernel_free_mask(mask);
}

static inline void cpumask_clear(struct cpumask *mask)
{
	bitmap_zero(mask->bits, NR_CPUS);
}

static inline void cpumask_setall(struct cpumask *mask)
{
	bitmap_fill(mask->bits, NR_CPUS);
}

static inline void cpumask_copy(struct cpumask *to, const struct cpumask *from)
{
	*to = *from;
}

static inline void cpumask_set_cpu(unsigned int cpu, struct cpumask *mask)
{
	if (cpu < NR_CPUS)
		set_bit(cpu, mask->bits);
}

static inline void cpumask_clear_cpu(int cpu, struct cpumask *mask)
{
	if ((unsigned int)cpu < NR_CPUS)
		clear_bit((unsigned int)cpu, mask->bits);
}

#define __cpumask_set_cpu(cpu, mask) cpumask_set_cpu((unsigned int)(cpu), (mask))
#define __cpumask_clear_cpu(cpu, mask) cpumask_clear_cpu((int)(cpu), (mask))

static inline bool cpumask_test_cpu(int cpu, const struct cpumask *mask)
{
	return (unsigned int)cpu < NR_CPUS && test_bit((unsigned int)cpu, mask->bits);
}

static inline bool cpumask_test_and_set_cpu(int cpu, struct cpumask *mask)
{
	return test_and_set_bit((unsigned int)cpu, mask->bits);
}

static inline bool cpumask_test_and_clear_cpu(int cpu, struct cpumask *mask)
{
	return test_and_clear_bit((unsigned int)cpu, mask->bits);
}

static inline bool cpumask_empty(const struct cpumask *mask)
{
	return bitmap_empty(mask->bits, NR_CPUS);
}

static inline unsigned int cpumask_weight(const struct cpumask *mask)
{
	return bitmap_weight(mask->bits, NR_CPUS);
}

static inline bool cpumask_equal(const struct cpumask *a, const struct cpumask *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

#define UW_KERNEL_MASK_OP(name, op) \
	static inline bool name(struct cpumask *to, const struct cpumask *a, const struct cpumask *b) \
	{ \
		size_t word; \
		for (word = 0; word < NR_CPUS / (8 * sizeof(long)); word++) \
			to->bits[word] = a->bits[word] op b->bits[word]; \
		return !cpumask_empty(to); \
	}

UW_KERNEL_MASK_OP(cpumask_and, &)
UW_KERNEL_MASK_OP(cpumask_or, |)
UW_KERNEL_MASK_OP(cpumask_xor, ^)
UW_KERNEL_MASK_OP(cpumask_andnot, &~)

static inline bool cpumask_intersects(const struct cpumask *a, const struct cpumask *b)
{
	struct cpumask both;

	return cpumask_and(&both, a, b);
}

static inline bool cpumask_subset(const struct cpumask *a, const struct cpumask *b)
{
	struct cpumask rest;

	return !cpumask_andnot(&rest, a, b);
}

static inline void cpumask_complement(struct cpumask *to, const struct cpumask *from)
{
	bitmap_complement(to->bits, from->bits, NR_CPUS);
}

static inline unsigned int cpumask_weight_and(const struct cpumask *a, const struct cpumask *b)
{
	struct cpumask both;

	cpumask_and(&both, a, b);
	return cpumask_weight(&both);
}

static inline unsigned int cpumask_weight_andnot(const struct cpumask *a, const struct cpumask *b)
{
	return cpumask_weight(a) - cpumask_weight_and(a, b);
}

/* Whether the union of the first two is the third. */
static inline bool cpumask_or_equal(const struct cpumask *a, const struct cpumask *b, const struct cpumask *c)
{
	struct cpumask both;

	cpumask_or(&both, a, b);
	return cpumask_equal(&both, c);
}

/* nr_cpu_ids if there is none. */
static inline unsigned int cpumask_next(int cpu, const struct cpumask *mask)
{
	unsigned long next = find_next_bit(mask->bits, NR_CPUS, (unsigned long)(cpu + 1));

	return next < NR_CPUS ? (unsigned int)next : nr_cpu_ids;
}

static inline unsigned int cpumask_first(const struct cpumask *mask)
{
	return cpumask_next(-1, mask);
}

static inline unsigned int cpumask_last(const struct cpumask *mask)
{
	unsigned int cpu = cpumask_first(mask), last = nr_cpu_ids;

	for (; cpu < nr_cpu_ids; cpu = cpumask_next((int)cpu, mask))
		last = cpu;
	return last;
}

static inline unsigned int cpumask_next_wrap(int cpu, const struct cpumask *mask)
{
	unsigned int next = cpumask_next(cpu, mask);

	return next < nr_cpu_ids ? next : cpumask_first(mask);
}

static inline unsigned int cpumask_nth(unsigned int n, const struct cpumask *mask)
{
	unsigned int cpu = cpumask_first(mask);

	while (n-- > 0 && cpu < nr_cpu_ids)
		cpu = cpumask_next((int)cpu, mask);
	return cpu;
}

static inline unsigned int cpumask_next_zero(int cpu, const struct cpumask *mask)
{
	unsigned long next = find_next_zero_bit(mask->bits, NR_CPUS, (unsigned long)(cpu + 1));

	return next < nr_cpu_ids ? (unsigned int)next : nr_cpu_ids;
}

static inline unsigned int cpumask_next_and(int cpu, const struct cpumask *a, const struct cpumask *b)
{
	unsigned int next = cpumask_next(cpu, a);

	while (next < nr_cpu_ids && !cpumask_test_cpu((int)next, b))
		next = cpumask_next((int)next, a);
	return next;
}

static inline unsigned int cpumask_first_and(const struct cpumask *a, const struct cpumask *b)
{
	struct cpumask both;

	cpumask_and(&both, a, b);
	return cpumask_first(&both);
}

static inline unsigned int cpumask_next_andnot(int cpu, const struct cpumask *a, const struct cpumask *b)
{
	unsigned int next = cpumask_next(cpu, a);

	while (next < nr_cpu_ids && cpumask_test_cpu((int)next, b))
		next = cpumask_next((int)next, a);
	return next;
}

/* Any CPU of the mask except `cpu`. */
static inline unsigned int cpumask_any_but(const struct cpumask *mask, unsigned int cpu)
{
	unsigned int any = cpumask_first(mask);

	return any == cpu ? cpumask_next((int)any, mask) : any;
}

static inline unsigned int cpumask_any_and_but(const struct cpumask *a, const struct cpumask *b, unsigned int cpu)
{
	unsigned int any = cpumask_next_and(-1, a, b);

	return any == cpu ? cpumask_next_and((int)any, a, b) : any;
}

static inline bool cpumask_full(const struct cpumask *mask)
{
	return cpumask_next_zero(-1, mask) >= nr_cpu_ids;
}

#define CPUMASK_VAR_NULL NULL
#define CPU_BITS_NONE { 0 }
#define CPU_MASK_NONE { CPU_BITS_NONE }
#define cpumask_first_zero(mask) cpumask_next_zero(-1, (mask))
#define cpumask_first_andnot(a, b) cpumask_next_andnot(-1, (a), (b))
#define cpumask_any_distribute(mask) cpumask_first(mask)
#define cpumask_any_and_distribute(a, b) cpumask_first_and((a), (b))
/* Arguments for the formats %*pb and %*pbl. */
#define cpumask_pr_args(mask) (int)nr_cpu_ids, (const void *)cpumask_bits(mask)
#define cpumap_print_to_pagebuf(list, buf, mask) \
	scnprintf((buf), 4096, (list) ? "%*pbl\n" : "%*pb\n", cpumask_pr_args(mask))
#define cpumask_any(mask) cpumask_first(mask)
#define cpumask_any_and(a, b) cpumask_first_and(a, b)

static inline unsigned int cpumask_local_spread(unsigned int i, int node)
{
	(void)node;
	return cpumask_nth(i % cpumask_weight(cpu_online_mask), cpu_online_mask);
}

#define cpulist_parse(text, mask) uw_kernel_parse_list((text), (mask))
#define cpumask_parselist(text, mask) uw_kernel_parse_list((text), (mask))
#define num_online_cpus() cpumask_weight(cpu_online_mask)
#define num_active_cpus() num_online_cpus()
#define num_possible_cpus() cpumask_weight(cpu_possible_mask)
#define num_present_cpus() num_possible_cpus()
#define cpu_online(cpu) cpumask_test_cpu((int)(cpu), cpu_online_mask)
#define cpu_active(cpu) cpu_online(cpu)
#define cpu_possible(cpu) cpumask_test_cpu((int)(cpu), cpu_possible_mask)
#define cpu_present(cpu) cpu_possible(cpu)

#define for_each_cpu(cpu, mask) \
	for ((cpu) = (__typeof__(cpu))cpumask_first(mask); (unsigned int)(cpu) < nr_cpu_ids; \
	     (cpu) = (__typeof__(cpu))cpumask_next((int)(cpu), (mask)))
/* The CPUs of `mask` for which the condition holds. */
#define UW_FOR_EACH_CPU_IF(cpu, mask, condition) \
	for_each_cpu(cpu, mask) \
		if (!(condition)) { \
		} else
#define for_each_cpu_and(cpu, a, b) UW_FOR_EACH_CPU_IF(cpu, a, cpumask_test_cpu((int)(cpu), (b)))
#define for_each_cpu_andnot(cpu, a, b) UW_FOR_EACH_CPU_IF(cpu, a, !cpumask_test_cpu((int)(cpu), (b)))
#define for_each_cpu_or(cpu, a, b) \
	for ((cpu) = 0; (unsigned int)(cpu) < nr_cpu_ids; (cpu)++) \
		if (!cpumask_test_cpu((int)(cpu), (a)) && !cpumask_test_cpu((int)(cpu), (b))) { \
		} else
#define for_each_cpu_not(cpu, mask) \
	for ((cpu) = 0; (unsigned int)(cpu) < nr_cpu_ids; (cpu)++) \
		if (cpumask_test_cpu((int)(cpu), (mask))) { \
		} else
#define for_each_cpu_from(cpu, mask) \
	for ((cpu) = (__typeof__(cpu))cpumask_next((int)(cpu) - 1, (mask)); (unsigned int)(cpu) < nr_cpu_ids; \
	     (cpu) = (__typeof__(cpu))cpumask_next((int)(cpu), (mask)))
/* Each CPU once, starting at `start` and wrapping around. */
#define for_each_cpu_wrap(cpu, mask, start) \
	for (unsigned int uw_left = ((cpu) = (__typeof__(cpu))cpumask_next_wrap((int)(start) - 1, (mask)), cpumask_weight(mask)); \
	     uw_left > 0; \
	     (cpu) = (__typeof__(cpu))(--uw_left > 0 ? cpumask_next_wrap((int)(cpu), (mask)) : nr_cpu_ids))
#define for_each_online_cpu_wrap(cpu, start) for_each_cpu_wrap(cpu, cpu_online_mask, start)
#define for_each_possible_cpu_wrap(cpu, start) for_each_cpu_wrap(cpu, cpu_possible_mask, start)
#define for_each_online_cpu(cpu) for_each_cpu(cpu, cpu_online_mask)
#define for_each_possible_cpu(cpu) for_each_cpu(cpu, cpu_possible_mask)
#define for_each_present_cpu(cpu) for_each_cpu(cpu, cpu_possible_mask)
#define for_each_active_cpu(cpu) for_each_cpu(cpu, cpu_online_mask)

#endif
