/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sorting of lists. */
#ifndef UWORK_KERNEL_LINUX_LIST_SORT_H
#define UWORK_KERNEL_LINUX_LIST_SORT_H

#include <linux/list.h>

typedef int (*list_cmp_func_t)(void *priv, const struct list_head *a, const struct list_head *b);

/*
 * Merges two chains that end with NULL. Of equal entries, those of `a` come first. Only `next` is
 * written.
 */
static inline struct list_head *uw_list_merge(void *priv, list_cmp_func_t compare, struct list_head *a,
					      struct list_head *b)
{
	struct list_head *first = NULL, **tail = &first;

	while (a && b) {
		struct list_head **least = compare(priv, a, b) > 0 ? &b : &a;

		*tail = *least;
		*least = (*least)->next;
		tail = &(*tail)->next;
	}
	*tail = a ? a : b;
	return first;
}

/* A stable sort. `compare` returns more than 0 if `a` belongs after `b`. */
static inline void list_sort(void *priv, struct list_head *head, list_cmp_func_t compare)
{
	/*
	 * Sorted runs: place n has a run of 2^n entries. The runs in higher places contain earlier
	 * entries.
	 */
	struct list_head *runs[8 * sizeof(size_t)] = { NULL };
	struct list_head *entry = head->next, *sorted = NULL, *previous = head;
	size_t place;

	while (entry != head) {
		struct list_head *run = entry;

		entry = entry->next;
		run->next = NULL;
		for (place = 0; runs[place]; place++) {
			run = uw_list_merge(priv, compare, runs[place], run);
			runs[place] = NULL;
		}
		runs[place] = run;
	}
	for (place = 0; place < sizeof(runs) / sizeof(runs[0]); place++)
		sorted = uw_list_merge(priv, compare, runs[place], sorted);
	for (; sorted; sorted = sorted->next) {
		previous->next = sorted;
		sorted->prev = previous;
		previous = sorted;
	}
	previous->next = head;
	head->prev = previous;
}

#endif
