// SPDX-License-Identifier: MIT OR Apache-2.0
/* Doubly linked lists as the list documentation walks through them, and hlists. */
#include <linux/list.h>
#include <linux/list_sort.h>
#include <linux/module.h>
#include <linux/slab.h>

struct clown {
	const char *name;
	int size;
	struct list_head node;
	struct hlist_node hash;
};

static LIST_HEAD(circus);

static int clown_cmp(void *priv, const struct list_head *a, const struct list_head *b)
{
	return list_entry(a, struct clown, node)->size - list_entry(b, struct clown, node)->size;
}

static int total(struct list_head *head)
{
	struct clown *c;
	int sum = 0;

	list_for_each_entry(c, head, node)
		sum = sum * 10 + c->size;
	return sum;
}

static struct clown *add(struct list_head *head, const char *name, int size)
{
	struct clown *c = kzalloc(sizeof(*c), GFP_KERNEL);

	if (!c)
		return NULL;
	INIT_LIST_HEAD(&c->node);
	c->name = name;
	c->size = size;
	list_add_tail(&c->node, head);
	return c;
}

static int __init circus_init(void)
{
	struct clown *grock, *dimitri, *stic, *c, *n;
	struct list_head *pos;
	LIST_HEAD(other);
	LIST_HEAD(cut);
	HLIST_HEAD(hall);
	int count = 0;

	grock = add(&circus, "Grock", 3);
	dimitri = add(&circus, "Dimitri", 1);
	stic = add(&circus, "Stic", 2);
	if (!grock || !dimitri || !stic)
		return -ENOMEM;
	if (total(&circus) != 312)
		return -EINVAL;

	list_sort(NULL, &circus, clown_cmp);
	if (total(&circus) != 123)
		return -EINVAL;
	list_move(&grock->node, &circus);
	list_rotate_left(&circus);
	if (total(&circus) != 123 || !list_is_last(&grock->node, &circus) ||
	    list_first_entry(&circus, struct clown, node) != dimitri ||
	    list_last_entry(&circus, struct clown, node) != grock ||
	    list_next_entry(dimitri, node) != stic || list_prev_entry(grock, node) != stic)
		return -EINVAL;
	list_cut_position(&cut, &circus, &stic->node);
	if (total(&cut) != 12 || total(&circus) != 3 || !list_is_singular(&circus))
		return -EINVAL;
	list_splice_tail_init(&cut, &circus);
	if (total(&circus) != 312 || !list_empty(&cut))
		return -EINVAL;
	list_for_each_prev(pos, &circus)
		count++;
	list_for_each_entry_reverse(c, &circus, node)
		count++;
	if (count != 6 || list_count_nodes(&circus) != 3)
		return -EINVAL;
	list_swap(&grock->node, &stic->node);
	list_bulk_move_tail(&other, &dimitri->node, &dimitri->node);
	list_splice_init(&other, &circus);
	if (total(&circus) != 123 && total(&circus) != 213 && total(&circus) != 132)
		return -EINVAL;

	hlist_add_head(&grock->hash, &hall);
	hlist_add_behind(&stic->hash, &grock->hash);
	hlist_add_before(&dimitri->hash, &stic->hash);
	count = 0;
	hlist_for_each_entry(c, &hall, hash)
		count = count * 10 + c->size;
	if (count != 312)
		return -EINVAL;
	hlist_del_init(&dimitri->hash);
	if (!hlist_unhashed(&dimitri->hash) || hlist_empty(&hall))
		return -EINVAL;

	c = list_first_entry_or_null(&circus, struct clown, node);
	if (!c)
		return -EINVAL;
	list_for_each_entry_safe(c, n, &circus, node) {
		list_del(&c->node);
		kfree(c);
	}
	if (!list_empty(&circus) || !list_entry_is_head(list_entry(&circus, struct clown, node), &circus, node))
		return -EINVAL;
	pr_info("lists: passed\n");
	return 0;
}

static void __exit circus_exit(void)
{
}

module_init(circus_init);
module_exit(circus_exit);
MODULE_LICENSE("GPL");
