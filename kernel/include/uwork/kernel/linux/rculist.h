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

/*
 * Moves the entries of `list` into another list, whose readers find all of them or none. Waits with
 * `sync` until readers of `list` have ended.
 */
static inline void uw_list_splice_init_rcu(struct list_head *list, struct list_head *prev, struct list_head *next,
					   void (*sync)(void))
{
	struct list_head *first = list->next, *last = list->prev;

	if (list_empty(list))
		return;
	INIT_LIST_HEAD(list);
	sync();
	last->next = next;
	first->prev = prev;
	rcu_assign_pointer(prev->next, first);
	next->prev = last;
}

static inline void list_splice_init_rcu(struct list_head *list, struct list_head *head, void (*sync)(void))
{
	uw_list_splice_init_rcu(list, head, head->next, sync);
}

static inline void list_splice_tail_init_rcu(struct list_head *list, struct list_head *head, void (*sync)(void))
{
	uw_list_splice_init_rcu(list, head->prev, head, sync);
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
#define list_next_or_null_rcu(head, ptr, type, member) \
	__extension__({ \
		struct list_head *uw_next = rcu_dereference((ptr)->next); \
		uw_next != (head) ? list_entry(uw_next, type, member) : (type *)NULL; \
	})
#define list_for_each_entry_continue_rcu(pos, head, member) \
	for ((pos) = list_entry_rcu((pos)->member.next, __typeof__(*(pos)), member); !list_entry_is_head(pos, head, member); \
	     (pos) = list_entry_rcu((pos)->member.next, __typeof__(*(pos)), member))
#define list_for_each_entry_from_rcu(pos, head, member) \
	for (; !list_entry_is_head(pos, head, member); \
	     (pos) = list_entry_rcu((pos)->member.next, __typeof__(*(pos)), member))
#define list_for_each_entry_lockless(pos, head, member) list_for_each_entry_rcu(pos, head, member)
#define list_for_each_entry_srcu(pos, head, ...) UW_LIST_FOR_EACH_RCU(pos, head, __VA_ARGS__)
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

#define hlist_first_rcu(head) ((head)->first)
#define hlist_next_rcu(node) ((node)->next)
#define hlist_pprev_rcu(node) (*(node)->pprev)

static inline void hlist_add_tail_rcu(struct hlist_node *node, struct hlist_head *head)
{
	struct hlist_node **at = &head->first;

	while (*at)
		at = &(*at)->next;
	node->next = NULL;
	node->pprev = at;
	rcu_assign_pointer(*at, node);
}

static inline void hlist_add_before_rcu(struct hlist_node *node, struct hlist_node *next)
{
	node->pprev = next->pprev;
	node->next = next;
	rcu_assign_pointer(*node->pprev, node);
	next->pprev = &node->next;
}

static inline void hlist_add_behind_rcu(struct hlist_node *node, struct hlist_node *previous)
{
	node->next = previous->next;
	node->pprev = &previous->next;
	rcu_assign_pointer(previous->next, node);
	if (node->next)
		node->next->pprev = &node->next;
}

static inline void hlist_replace_rcu(struct hlist_node *old, struct hlist_node *node)
{
	node->next = old->next;
	node->pprev = old->pprev;
	rcu_assign_pointer(*node->pprev, node);
	if (node->next)
		node->next->pprev = &node->next;
	old->pprev = NULL;
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

#define hlist_for_each_entry_srcu(pos, head, ...) UW_HLIST_FOR_EACH_RCU(pos, head, __VA_ARGS__)
#define hlist_for_each_entry_rcu(pos, head, ...) UW_HLIST_FOR_EACH_RCU(pos, head, __VA_ARGS__, true)
#define UW_HLIST_FOR_EACH_RCU(pos, head, member, ...) \
	for ((pos) = hlist_entry_safe(rcu_dereference((head)->first), __typeof__(*(pos)), member); (pos); \
	     (pos) = hlist_entry_safe(rcu_dereference((pos)->member.next), __typeof__(*(pos)), member))

#endif
