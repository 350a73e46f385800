/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Doubly linked lists, and the lists of hash tables. */
#ifndef UWORK_KERNEL_LINUX_LIST_H
#define UWORK_KERNEL_LINUX_LIST_H

#include <linux/compiler.h>
#include <linux/container_of.h>
#include <linux/types.h>

#define LIST_HEAD_INIT(name) { &(name), &(name) }
#define LIST_HEAD(name) struct list_head name = LIST_HEAD_INIT(name)

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	/* list_empty() may look without a lock. */
	WRITE_ONCE(list->next, list);
	WRITE_ONCE(list->prev, list);
}

static inline void uw_list_link(struct list_head *prev, struct list_head *next)
{
	WRITE_ONCE(next->prev, prev);
	WRITE_ONCE(prev->next, next);
}

static inline void uw_list_insert(struct list_head *entry, struct list_head *prev, struct list_head *next)
{
	uw_list_link(entry, next);
	uw_list_link(prev, entry);
}

static inline void list_add(struct list_head *entry, struct list_head *head)
{
	uw_list_insert(entry, head, head->next);
}

static inline void list_add_tail(struct list_head *entry, struct list_head *head)
{
	uw_list_insert(entry, head->prev, head);
}

static inline void list_del_init(struct list_head *entry)
{
	uw_list_link(entry->prev, entry->next);
	INIT_LIST_HEAD(entry);
}

/* Addresses that fault when they are used by mistake. */
#define LIST_POISON1 ((struct list_head *)0x100)
#define LIST_POISON2 ((struct list_head *)0x122)

static inline void list_del(struct list_head *entry)
{
	uw_list_link(entry->prev, entry->next);
	entry->next = LIST_POISON1;
	entry->prev = LIST_POISON2;
}

static inline void list_replace(struct list_head *old, struct list_head *entry)
{
	uw_list_insert(entry, old->prev, old->next);
}

static inline void list_replace_init(struct list_head *old, struct list_head *entry)
{
	list_replace(old, entry);
	INIT_LIST_HEAD(old);
}

static inline void list_move(struct list_head *entry, struct list_head *head)
{
	uw_list_link(entry->prev, entry->next);
	list_add(entry, head);
}

static inline void list_move_tail(struct list_head *entry, struct list_head *head)
{
	uw_list_link(entry->prev, entry->next);
	list_add_tail(entry, head);
}

static inline bool list_empty(const struct list_head *head)
{
	return READ_ONCE(head->next) == head;
}

static inline bool list_empty_careful(const struct list_head *head)
{
	struct list_head *next = smp_load_acquire(&head->next);

	return next == head && next == READ_ONCE(head->prev);
}

static inline bool list_is_singular(const struct list_head *head)
{
	return !list_empty(head) && head->next == head->prev;
}

static inline bool list_is_first(const struct list_head *entry, const struct list_head *head)
{
	return entry->prev == head;
}

static inline bool list_is_last(const struct list_head *entry, const struct list_head *head)
{
	return entry->next == head;
}

static inline bool list_is_head(const struct list_head *entry, const struct list_head *head)
{
	return entry == head;
}

static inline void list_splice(const struct list_head *list, struct list_head *head)
{
	if (list_empty(list))
		return;
	uw_list_link(list->prev, head->next);
	uw_list_link(head, list->next);
}

static inline void list_splice_tail(struct list_head *list, struct list_head *head)
{
	if (list_empty(list))
		return;
	uw_list_link(head->prev, list->next);
	uw_list_link(list->prev, head);
}

static inline void list_splice_init(struct list_head *list, struct list_head *head)
{
	list_splice(list, head);
	INIT_LIST_HEAD(list);
}

static inline void list_splice_tail_init(struct list_head *list, struct list_head *head)
{
	list_splice_tail(list, head);
	INIT_LIST_HEAD(list);
}

static inline void list_rotate_left(struct list_head *head)
{
	if (!list_empty(head))
		list_move_tail(head->next, head);
}

static inline size_t list_count_nodes(struct list_head *head)
{
	struct list_head *entry;
	size_t count = 0;

	for (entry = head->next; entry != head; entry = entry->next)
		count++;
	return count;
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first_entry(head, type, member) list_entry((head)->next, type, member)
#define list_last_entry(head, type, member) list_entry((head)->prev, type, member)
#define list_first_entry_or_null(head, type, member) \
	(list_empty(head) ? (type *)NULL : list_first_entry(head, type, member))
#define list_next_entry(pos, member) list_entry((pos)->member.next, __typeof__(*(pos)), member)
#define list_prev_entry(pos, member) list_entry((pos)->member.prev, __typeof__(*(pos)), member)
#define list_entry_is_head(pos, head, member) (&(pos)->member == (head))

#define list_for_each(pos, head) for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)
#define list_for_each_prev(pos, head) for ((pos) = (head)->prev; (pos) != (head); (pos) = (pos)->prev)
#define list_for_each_safe(pos, n, head) \
	for ((pos) = (head)->next, (n) = (pos)->next; (pos) != (head); (pos) = (n), (n) = (pos)->next)
#define list_for_each_entry(pos, head, member) \
	for ((pos) = list_first_entry(head, __typeof__(*(pos)), member); !list_entry_is_head(pos, head, member); \
	     (pos) = list_next_entry(pos, member))
#define list_for_each_entry_reverse(pos, head, member) \
	for ((pos) = list_last_entry(head, __typeof__(*(pos)), member); !list_entry_is_head(pos, head, member); \
	     (pos) = list_prev_entry(pos, member))
#define list_for_each_entry_continue(pos, head, member) \
	for ((pos) = list_next_entry(pos, member); !list_entry_is_head(pos, head, member); \
	     (pos) = list_next_entry(pos, member))
#define list_for_each_entry_from(pos, head, member) \
	for (; !list_entry_is_head(pos, head, member); (pos) = list_next_entry(pos, member))
#define list_for_each_entry_safe(pos, n, head, member) \
	for ((pos) = list_first_entry(head, __typeof__(*(pos)), member), (n) = list_next_entry(pos, member); \
	     !list_entry_is_head(pos, head, member); (pos) = (n), (n) = list_next_entry(n, member))
#define list_for_each_entry_safe_reverse(pos, n, head, member) \
	for ((pos) = list_last_entry(head, __typeof__(*(pos)), member), (n) = list_prev_entry(pos, member); \
	     !list_entry_is_head(pos, head, member); (pos) = (n), (n) = list_prev_entry(n, member))

#define HLIST_HEAD_INIT { NULL }
#define HLIST_HEAD(name) struct hlist_head name = HLIST_HEAD_INIT
#define INIT_HLIST_HEAD(head) ((head)->first = NULL)

static inline void INIT_HLIST_NODE(struct hlist_node *node)
{
	node->next = NULL;
	node->pprev = NULL;
}

static inline bool hlist_unhashed(const struct hlist_node *node)
{
	return !node->pprev;
}

static inline bool hlist_empty(const struct hlist_head *head)
{
	return !READ_ONCE(head->first);
}

static inline void hlist_add_head(struct hlist_node *node, struct hlist_head *head)
{
	node->next = head->first;
	if (head->first)
		head->first->pprev = &node->next;
	head->first = node;
	node->pprev = &head->first;
}

static inline void hlist_del_init(struct hlist_node *node)
{
	if (hlist_unhashed(node))
		return;
	*node->pprev = node->next;
	if (node->next)
		node->next->pprev = node->pprev;
	INIT_HLIST_NODE(node);
}

static inline void hlist_del(struct hlist_node *node)
{
	hlist_del_init(node);
}

#define hlist_entry(ptr, type, member) container_of(ptr, type, member)
#define hlist_entry_safe(ptr, type, member) \
	__extension__({ \
		__typeof__(ptr) uw_node = (ptr); \
		uw_node ? hlist_entry(uw_node, type, member) : (type *)NULL; \
	})
#define hlist_for_each(pos, head) for ((pos) = (head)->first; (pos); (pos) = (pos)->next)
#define hlist_for_each_entry(pos, head, member) \
	for ((pos) = hlist_entry_safe((head)->first, __typeof__(*(pos)), member); (pos); \
	     (pos) = hlist_entry_safe((pos)->member.next, __typeof__(*(pos)), member))
#define hlist_for_each_entry_safe(pos, n, head, member) \
	for ((pos) = hlist_entry_safe((head)->first, __typeof__(*(pos)), member); \
	     (pos) && ((n) = (pos)->member.next, 1); (pos) = hlist_entry_safe((n), __typeof__(*(pos)), member))

#define list_last_entry_or_null(head, type, member) \
	(list_empty(head) ? (type *)NULL : list_last_entry(head, type, member))
#define list_next_entry_circular(pos, head, member) \
	(list_is_last(&(pos)->member, head) ? list_first_entry(head, __typeof__(*(pos)), member) : list_next_entry(pos, member))
#define list_prev_entry_circular(pos, head, member) \
	(list_is_first(&(pos)->member, head) ? list_last_entry(head, __typeof__(*(pos)), member) : list_prev_entry(pos, member))
/* The position for list_for_each_entry_continue(); the head if `pos` is NULL. */
#define list_prepare_entry(pos, head, member) ((pos) ? (pos) : list_entry(head, __typeof__(*(pos)), member))
#define list_safe_reset_next(pos, n, member) ((n) = list_next_entry(pos, member))
#define list_for_each_reverse(pos, head) list_for_each_prev(pos, head)
#define list_for_each_continue(pos, head) for ((pos) = (pos)->next; (pos) != (head); (pos) = (pos)->next)
#define list_for_each_prev_safe(pos, n, head) \
	for ((pos) = (head)->prev, (n) = (pos)->prev; (pos) != (head); (pos) = (n), (n) = (pos)->prev)
#define list_for_each_entry_continue_reverse(pos, head, member) \
	for ((pos) = list_prev_entry(pos, member); !list_entry_is_head(pos, head, member); \
	     (pos) = list_prev_entry(pos, member))
#define list_for_each_entry_from_reverse(pos, head, member) \
	for (; !list_entry_is_head(pos, head, member); (pos) = list_prev_entry(pos, member))
#define list_for_each_entry_safe_from(pos, n, head, member) \
	for ((n) = list_next_entry(pos, member); !list_entry_is_head(pos, head, member); \
	     (pos) = (n), (n) = list_next_entry(n, member))
#define list_for_each_entry_safe_continue(pos, n, head, member) \
	for ((pos) = list_next_entry(pos, member), (n) = list_next_entry(pos, member); \
	     !list_entry_is_head(pos, head, member); (pos) = (n), (n) = list_next_entry(n, member))

static inline void __list_del_entry(struct list_head *entry)
{
	uw_list_link(entry->prev, entry->next);
}

/*
 * Pairs with list_empty_careful(): a thread that sees the entry deleted also sees everything
 * written before.
 */
static inline void list_del_init_careful(struct list_head *entry)
{
	uw_list_link(entry->prev, entry->next);
	WRITE_ONCE(entry->prev, entry);
	smp_store_release(&entry->next, entry);
}

static inline void list_swap(struct list_head *a, struct list_head *b)
{
	struct list_head *before_b = b->prev;

	list_del_init(b);
	list_replace(a, b);
	if (before_b == a)
		before_b = b;
	list_add(a, before_b);
}

/* Moves the entries from `first` to `last` to the end of another list. */
static inline void list_bulk_move_tail(struct list_head *head, struct list_head *first, struct list_head *last)
{
	uw_list_link(first->prev, last->next);
	uw_list_link(head->prev, first);
	uw_list_link(last, head);
}

/* Makes `entry` the first one. */
static inline void list_rotate_to_front(struct list_head *entry, struct list_head *head)
{
	list_move_tail(head, entry);
}

/* Moves all entries up to and including `entry` to `list`, whose old content is overwritten. */
static inline void list_cut_position(struct list_head *list, struct list_head *head, struct list_head *entry)
{
	INIT_LIST_HEAD(list);
	if (!list_empty(head) && entry != head)
		list_bulk_move_tail(list, head->next, entry);
}

/* The same for the entries before `entry`. */
static inline void list_cut_before(struct list_head *list, struct list_head *head, struct list_head *entry)
{
	INIT_LIST_HEAD(list);
	if (head->next != entry)
		list_bulk_move_tail(list, head->next, entry->prev);
}

static inline bool hlist_unhashed_lockless(const struct hlist_node *node)
{
	return !READ_ONCE(node->pprev);
}

static inline void hlist_add_before(struct hlist_node *node, struct hlist_node *next)
{
	node->pprev = next->pprev;
	node->next = next;
	next->pprev = &node->next;
	*node->pprev = node;
}

static inline void hlist_add_behind(struct hlist_node *node, struct hlist_node *previous)
{
	node->next = previous->next;
	previous->next = node;
	node->pprev = &previous->next;
	if (node->next)
		node->next->pprev = &node->next;
}

static inline bool hlist_is_singular_node(const struct hlist_node *node, const struct hlist_head *head)
{
	return !node->next && node->pprev == &head->first;
}

static inline void hlist_move_list(struct hlist_head *from, struct hlist_head *to)
{
	to->first = from->first;
	if (to->first)
		to->first->pprev = &to->first;
	from->first = NULL;
}

#define hlist_for_each_safe(pos, n, head) \
	for ((pos) = (head)->first; (pos) && ((n) = (pos)->next, 1); (pos) = (n))
#define hlist_for_each_entry_continue(pos, member) \
	for ((pos) = hlist_entry_safe((pos)->member.next, __typeof__(*(pos)), member); (pos); \
	     (pos) = hlist_entry_safe((pos)->member.next, __typeof__(*(pos)), member))
#define hlist_for_each_entry_from(pos, member) \
	for (; (pos); (pos) = hlist_entry_safe((pos)->member.next, __typeof__(*(pos)), member))

static inline size_t hlist_count_nodes(struct hlist_head *head)
{
	struct hlist_node *node;
	size_t count = 0;

	for (node = head->first; node; node = node->next)
		count++;
	return count;
}

/* Moves the nodes from the first to `last` to the front of another list. */
static inline void hlist_splice_init(struct hlist_head *from, struct hlist_node *last, struct hlist_head *to)
{
	if (to->first)
		to->first->pprev = &last->next;
	last->next = to->first;
	to->first = from->first;
	from->first->pprev = &to->first;
	from->first = NULL;
}

/* A node that is on no list, and can be deleted. */
static inline void hlist_add_fake(struct hlist_node *node)
{
	node->pprev = &node->next;
}

static inline bool hlist_fake(struct hlist_node *node)
{
	return node->pprev == &node->next;
}

#endif
