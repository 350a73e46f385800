// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Sets and lists: CPU masks, topology, bitmaps, bits, lists, hash tables. Includes few headers;
 * these include the others.
 */
#include <linux/module.h>
#include <linux/bitfield.h>
#include <linux/hashtable.h>
#include <linux/list_sort.h>
#include <linux/sched/topology.h>
#include <linux/slab.h>
#include "check.h"

static void cpumasks(void)
{
	cpumask_var_t a, b;
	unsigned int cpu, seen = 0;
	char buf[64];

	/* The masks need two CPUs. */
	if (nr_cpu_ids < 2)
		return;
	CHECK(zalloc_cpumask_var(&a, GFP_KERNEL));
	CHECK(zalloc_cpumask_var_node(&b, GFP_KERNEL, NUMA_NO_NODE));
	cpumask_set_cpu(0, a);
	cpumask_set_cpu(1, a);
	cpumask_set_cpu(1, b);
	CHECK(cpumask_next_and(-1, a, b) == 1 && cpumask_next_andnot(-1, a, b) == 0);
	CHECK(cpumask_next_and(1, a, b) == nr_cpu_ids && cpumask_next_andnot(0, a, b) == nr_cpu_ids);
	CHECK(cpumask_any_but(a, 0) == 1 && cpumask_any_but(a, 1) == 0 && cpumask_any_but(b, 1) >= nr_cpu_ids);
	CHECK(cpumask_any_and_but(a, b, 1) >= nr_cpu_ids && cpumask_first_zero(b) == 0);
	CHECK(cpumask_weight_and(a, b) == 1 && cpumask_weight_andnot(a, b) == 1 && cpumask_available(a));
	for_each_cpu_andnot(cpu, a, b)
		seen = seen * 10 + cpu + 1;
	CHECK(seen == 1);
	for_each_cpu_and(cpu, a, b)
		seen = seen * 10 + cpu + 1;
	CHECK(seen == 12);
	seen = 0;
	for_each_cpu_wrap(cpu, a, 1)
		seen = seen * 10 + cpu + 1;
	CHECK(seen == 21 && cpu >= nr_cpu_ids);
	seen = 0;
	for_each_cpu_or(cpu, a, b)
		seen++;
	for_each_cpu_not(cpu, a)
		seen += 10;
	CHECK(seen == 2 + 10 * (nr_cpu_ids - 2) && cpumask_or_equal(a, b, a) && !cpumask_or_equal(b, b, a));
	seen = 21;
	cpu = 1;
	for_each_cpu_from(cpu, a)
		seen++;
	CHECK(seen == 22);
	cpumask_complement(b, a);
	CHECK(!cpumask_test_cpu(0, b) && cpumask_test_cpu(2, b) && cpumask_full(a) == (nr_cpu_ids == 2));
	CHECK(scnprintf(buf, sizeof(buf), "%*pbl", cpumask_pr_args(a)) == 3 && strcmp(buf, "0-1") == 0);
	CHECK(cpumap_print_to_pagebuf(true, buf, a) == 4 && strcmp(buf, "0-1\n") == 0);
	free_cpumask_var(a);
	free_cpumask_var(b);
}

static void add_one(void *info)
{
	atomic_add(1 << smp_processor_id(), (atomic_t *)info);
}

static bool is_first(int cpu, void *info)
{
	(void)info;
	return cpu == (int)cpumask_first(cpu_online_mask);
}

static int sleep_and_answer(void *arg)
{
	might_sleep();
	return raw_smp_processor_id() + *(int *)arg;
}

static void topology(void)
{
	atomic_t where = ATOMIC_INIT(0);
	int cpu, first = (int)cpumask_first(cpu_online_mask), expected = 0;

	for_each_online_cpu(cpu) {
		CHECK(cpumask_test_cpu(cpu, topology_sibling_cpumask(cpu)));
		CHECK(cpumask_subset(cpu_smt_mask(cpu), topology_core_cpumask(cpu)));
		CHECK(cpumask_test_cpu(cpu, topology_llc_cpumask(cpu)) && cpus_share_cache(cpu, cpu));
		CHECK(topology_physical_package_id(cpu) >= -1 && topology_core_id(cpu) >= -1);
		expected |= 1 << cpu;
	}
	CHECK(num_online_nodes() >= 1);
	CHECK(smp_call_function_single(first, add_one, &where, 1) == 0 && atomic_read(&where) == 1 << first);
	CHECK(smp_call_function_single(NR_CPUS, add_one, &where, 1) == -ENXIO);
	atomic_set(&where, 0);
	on_each_cpu(add_one, &where, 1);
	CHECK(atomic_read(&where) == expected);
	atomic_set(&where, 0);
	on_each_cpu_mask(cpumask_of(first), add_one, &where, 1);
	CHECK(atomic_read(&where) == 1 << first);
	on_each_cpu_cond(is_first, add_one, &where, 1);
	CHECK(atomic_read(&where) == 2 << first);
	expected = 100;
	CHECK(smp_call_on_cpu((unsigned int)first, sleep_and_answer, &expected, false) == 100 + first);
	CHECK(first_online_node < MAX_NUMNODES && node_online(first_online_node));
}

static void bitmaps(void)
{
	unsigned long *a = bitmap_zalloc(130, GFP_KERNEL), *b = bitmap_zalloc(130, GFP_KERNEL);
	DECLARE_BITMAP(c, 130);
	unsigned long bit;
	int sum = 0;

	bitmap_set(a, 60, 10);
	bitmap_set(b, 65, 65);
	CHECK(bitmap_weight(a, 130) == 10 && bitmap_and(c, a, b, 130) && bitmap_weight(c, 130) == 5);
	bitmap_or(c, a, b, 130);
	CHECK(bitmap_weight(c, 130) == 70 && bitmap_intersects(a, b, 130));
	CHECK(bitmap_andnot(c, a, b, 130) && find_last_bit(c, 130) == 64);
	bitmap_xor(c, a, a, 130);
	CHECK(bitmap_empty(c, 130) && !bitmap_full(c, 130));
	bitmap_fill(c, 130);
	CHECK(bitmap_full(c, 130));
	bitmap_copy(c, a, 130);
	/* Bits beyond the end do not count. */
	__set_bit(131, c);
	CHECK(bitmap_equal(a, c, 130));
	bitmap_clear(c, 60, 9);
	CHECK(!bitmap_equal(a, c, 130) && find_nth_bit(a, 130, 2) == 62 && find_nth_bit(a, 130, 10) == 130);
	bit = 66;
	for_each_set_bit_from(bit, a, 130)
		sum += (int)bit;
	CHECK(sum == 66 + 67 + 68 + 69);
	bitmap_fill(c, 130);
	__clear_bit(5, c);
	sum = 0;
	for_each_clear_bit(bit, c, 130)
		sum += (int)bit;
	CHECK(sum == 5 && __test_and_clear_bit(6, c) && !__test_and_clear_bit(6, c) && !__test_and_set_bit(6, c));
	CHECK(hweight8(0xf1) == 5 && hweight16(0xff01) == 9 && __ffs64(1ULL << 40) == 40);
	CHECK(rol32(0x80000001u, 1) == 3 && ror32(3, 1) == 0x80000001u && rol64(1, 64) == 1 && ror64(1, 1) == 1ULL << 63);
	CHECK(sign_extend32(0xff, 7) == -1 && sign_extend64(0x7f, 7) == 127);
	CHECK(FIELD_GET(GENMASK(7, 4), 0xabUL) == 0xa && FIELD_PREP(GENMASK(7, 4), 0xc) == 0xc0);
	CHECK(BITS_PER_TYPE(u16) == 16);
	bitmap_free(a);
	bitmap_free(b);
}

struct entry {
	int key, order;
	struct list_head list;
	struct hlist_node hash;
};

static int by_key(void *priv, const struct list_head *a, const struct list_head *b)
{
	(*(int *)priv)++;
	return list_entry(a, struct entry, list)->key - list_entry(b, struct entry, list)->key;
}

static void sorting(void)
{
	struct entry *entries = kvcalloc(100, sizeof(*entries), GFP_KERNEL), *at, *previous = NULL;
	int i, compared = 0, count = 0;
	LIST_HEAD(list);

	for (i = 0; i < 100; i++) {
		entries[i].key = i * 37 % 10;
		entries[i].order = i;
		list_add_tail(&entries[i].list, &list);
	}
	list_sort(&compared, &list, by_key);
	list_for_each_entry(at, &list, list) {
		CHECK(!previous || previous->key < at->key || (previous->key == at->key && previous->order < at->order));
		previous = at;
		count++;
	}
	CHECK(count == 100 && compared > 0 && compared < 1000);
	list_for_each_entry_reverse(at, &list, list)
		count--;
	CHECK(count == 0);
	kvfree(entries);
}

static int number(struct list_head *list)
{
	struct entry *at;
	int sum = 0;

	list_for_each_entry(at, list, list)
		sum = sum * 10 + at->key;
	return sum;
}

static void cutting(void)
{
	struct entry e[6], *at, *next;
	LIST_HEAD(list);
	LIST_HEAD(cut);
	int i, sum = 0;

	for (i = 0; i < 6; i++) {
		e[i].key = i + 1;
		list_add_tail(&e[i].list, &list);
	}
	list_cut_position(&cut, &list, &e[1].list);
	CHECK(number(&cut) == 12 && number(&list) == 3456);
	list_splice_init(&cut, &list);
	list_cut_before(&cut, &list, &e[1].list);
	CHECK(number(&cut) == 1 && number(&list) == 23456);
	list_bulk_move_tail(&cut, &e[2].list, &e[3].list);
	CHECK(number(&cut) == 134 && number(&list) == 256);
	list_splice_tail_init(&list, &cut);
	CHECK(number(&cut) == 134256);
	list_swap(&e[0].list, &e[5].list);
	CHECK(number(&cut) == 634251);
	list_swap(&e[5].list, &e[2].list);
	CHECK(number(&cut) == 364251);
	list_rotate_to_front(&e[1].list, &cut);
	CHECK(number(&cut) == 251364);
	CHECK(list_next_entry_circular(&e[3], &cut, list) == &e[1] && list_prev_entry_circular(&e[1], &cut, list) == &e[3]);
	CHECK(list_last_entry_or_null(&cut, struct entry, list) == &e[3] && !list_last_entry_or_null(&list, struct entry, list));
	at = &e[0];
	list_for_each_entry_continue_reverse(at, &cut, list)
		sum = sum * 10 + at->key;
	CHECK(sum == 52);
	at = &e[0];
	list_for_each_entry_safe_from(at, next, &cut, list)
		list_del_init_careful(&at->list);
	CHECK(number(&cut) == 25 && list_empty_careful(&e[0].list));
}

static void hashing(void)
{
	DEFINE_HASHTABLE(table, 3);
	struct entry e[20], *at;
	struct hlist_node *next;
	int i, bucket, sum = 0;

	CHECK(hash_empty(table) && HASH_SIZE(table) == 8);
	for (i = 0; i < 20; i++) {
		e[i].key = i;
		hash_add(table, &e[i].hash, e[i].key);
	}
	hash_for_each(table, bucket, at, hash)
		sum += at->key;
	CHECK(sum == 190);
	hash_for_each_possible(table, at, hash, 7)
		if (at->key == 7)
			sum = 7;
	CHECK(sum == 7);
	rcu_read_lock();
	hash_for_each_possible_rcu(table, at, hash, 8)
		if (at->key == 8)
			sum = 8;
	rcu_read_unlock();
	CHECK(sum == 8);
	hash_for_each_safe(table, bucket, next, at, hash)
		hash_del(&at->hash);
	CHECK(hash_empty(table) && !hash_hashed(&e[0].hash));
	CHECK(hash_32(1, 8) < 256 && hash_64(1, 8) != hash_64(2, 8) && hash_ptr(e, 5) < 32);
}

static void rcu_lists(void)
{
	struct entry e[3], *at;
	int i, sum = 0;
	LIST_HEAD(list);

	for (i = 0; i < 3; i++) {
		e[i].key = i + 1;
		list_add_tail_rcu(&e[i].list, &list);
	}
	list_del_rcu(&e[1].list);
	list_for_each_entry_rcu(at, &list, list)
		sum = sum * 10 + at->key;
	CHECK(sum == 13);
	list_replace_rcu(&e[2].list, &e[1].list);
	CHECK(number(&list) == 12 && list_first_or_null_rcu(&list, struct entry, list) == &e[0]);
}

static int __init sets_init(void)
{
	cpumasks();
	topology();
	bitmaps();
	sorting();
	cutting();
	hashing();
	rcu_lists();
	return checked();
}
module_init(sets_init)
MODULE_LICENSE("Dual MIT/GPL");
