/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Lists that readers traverse within read sides. */
#ifndef UWORK_KERNEL_LINUX_RCULIST_H
#define UWORK_KERNEL_LINUX_RCULIST_H

#include <linux/list.h>
#include <linux/rcupdate.h>

#define list_next_rcu(list) ((list)->next)

static inline void uw_list_insert_rcu(struct list_head *entry, struct list_head *prev, struct list_head *next)
{
	entry->next = next;
	entry->prev = prev;
	rcu_assign_pointer(prev->next, entry);
	next->prev = entry;
}

static inline void list_add_rcu(struct list_head *entry, struct list_head *head)
{
	uw_list_insert_rcu(entry, head, head->next);
}

static inline void list_add_tail_rcu(struct list_head *entry, struct list_head *head)
{
	uw_list_insert_rcu(entry, head->prev, head);
}

/* A reader at the entry still finds the next entry. */
static inline void list_del_rcu(struct list_head *entry)
{
	entry->next->prev = entry->prev;
	WRITE_ONCE(entry->prev->next, entry->next);
	entry->prev = LIST_POISON2;
}

static inline void list_replace_rcu(struct list_head *old, struct list_head *entry)
{
	uw_list_insert_rcu(entry, old->prev, old->next);
	old->prev = LIST_POISON2;
}

#define list_entry_rcu(ptr, type, member) container_of(rcu_dereference(ptr), type, member)
#define list_first_or_null_rcu(head, type, member) \
	__extension__({ \
		struct list_head *uw_first = rcu_dereference((head)->next); \
		uw_first != (head) ? list_entry(uw_first, type, member) : (type *)NULL; \
	})
/* An optional fourth argument is the kernel's lockdep condition. It is not checked. */
#define list_for_each_entry_rcu(pos, head, ...) UW_LIST_FOR_EACH_RCU(pos, head, __VA_ARGS__, true)
#define UW_LIST_FOR_EACH_RCU(pos, head, member, ...) \
	for ((pos) = list_entry_rcu((head)->next, __typeof__(*(pos)), member); !list_entry_is_head(pos, head, member); \
	     (pos) = list_entry_rcu((pos)->member.next, __typeof__(*(pos)), member))

static inline void hlist_add_head_rcu(struct hlist_node *node, struct hlist_head *head)
{
	struct hlist_node *first = head->first;

	node->next = first;
	node->pprev = &head->first;
	rcu_assign_pointer(head->first, node);
	if (first)
		first->pprev = &node->next;
}

static inline void hlist_del_rcu(struct hlist_node *node)
{
	WRITE_ONCE(*node->pprev, node->next);
	if (node->next)
		node->next->pprev = node->pprev;
	node->pprev = NULL;
}

static inline void hlist_del_init_rcu(struct hlist_node *node)
{
	if (!hlist_unhashed(node))
		hlist_del_rcu(node);
}

#define hlist_for_each_entry_rcu(pos, head, ...) UW_HLIST_FOR_EACH_RCU(pos, head, __VA_ARGS__, true)
#define UW_HLIST_FOR_EACH_RCU(pos, head, member, ...) \
	for ((pos) = hlist_entry_safe(rcu_dereference((head)->first), __typeof__(*(pos)), member); (pos); \
	     (pos) = hlist_entry_safe(rcu_dereference((pos)->member.next), __typeof__(*(pos)), member))

#endif
