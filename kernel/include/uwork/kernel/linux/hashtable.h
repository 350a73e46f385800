/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Hash tables of lists. The length is a power of two that is known at compile time. */
#ifndef UWORK_KERNEL_LINUX_HASHTABLE_H
#define UWORK_KERNEL_LINUX_HASHTABLE_H

#include <linux/array_size.h>
#include <linux/hash.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/rculist.h>

/* Empty lists are all zero bytes. */
#define DECLARE_HASHTABLE(name, bits) struct hlist_head name[1 << (bits)]
#define DEFINE_HASHTABLE(name, bits) struct hlist_head name[1 << (bits)] = { HLIST_HEAD_INIT }
#define HASH_SIZE(table) ARRAY_SIZE(table)
#define HASH_BITS(table) ((unsigned int)ilog2(HASH_SIZE(table)))
#define hash_min(value, bits) (sizeof(value) <= 4 ? hash_32((u32)(value), (bits)) : hash_64((u64)(value), (bits)))
#define UW_BUCKET(table, key) (&(table)[hash_min(key, HASH_BITS(table))])

static inline void uw_hash_init(struct hlist_head *table, size_t size)
{
	while (size > 0)
		table[--size].first = NULL;
}

static inline bool uw_hash_empty(const struct hlist_head *table, size_t size)
{
	while (size > 0) {
		if (!hlist_empty(&table[--size]))
			return false;
	}
	return true;
}

static inline void hash_del(struct hlist_node *node)
{
	hlist_del_init(node);
}

#define hash_init(table) uw_hash_init((table), HASH_SIZE(table))
#define hash_empty(table) uw_hash_empty((table), HASH_SIZE(table))
#define hash_hashed(node) (!hlist_unhashed(node))
#define hash_add(table, node, key) hlist_add_head((node), UW_BUCKET(table, key))
#define hash_add_rcu(table, node, key) hlist_add_head_rcu((node), UW_BUCKET(table, key))
#define hash_del_rcu(node) hlist_del_init_rcu(node)
#define hash_for_each(table, bucket, obj, member) \
	for ((bucket) = 0, (obj) = NULL; !(obj) && (size_t)(bucket) < HASH_SIZE(table); (bucket)++) \
		hlist_for_each_entry(obj, &(table)[bucket], member)
#define hash_for_each_safe(table, bucket, tmp, obj, member) \
	for ((bucket) = 0, (obj) = NULL; !(obj) && (size_t)(bucket) < HASH_SIZE(table); (bucket)++) \
		hlist_for_each_entry_safe(obj, tmp, &(table)[bucket], member)
#define hash_for_each_rcu(table, bucket, obj, member) \
	for ((bucket) = 0, (obj) = NULL; !(obj) && (size_t)(bucket) < HASH_SIZE(table); (bucket)++) \
		hlist_for_each_entry_rcu(obj, &(table)[bucket], member)
#define hash_for_each_possible(table, obj, member, key) hlist_for_each_entry(obj, UW_BUCKET(table, key), member)
#define hash_for_each_possible_safe(table, obj, tmp, member, key) \
	hlist_for_each_entry_safe(obj, tmp, UW_BUCKET(table, key), member)
#define hash_for_each_possible_rcu(table, obj, member, key) \
	hlist_for_each_entry_rcu(obj, UW_BUCKET(table, key), member)

#endif
