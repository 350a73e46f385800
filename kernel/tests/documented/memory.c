// SPDX-License-Identifier: MIT OR Apache-2.0
/* Memory: slab caches, kmalloc and its relatives, strings. */
#include <linux/gfp.h>
#include <linux/module.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

struct inode_info {
	unsigned long number;
	int state;
	unsigned int nr;
	u32 blocks[] __counted_by(nr);
};

static struct kmem_cache *cache;
static int constructed;

static void init_once(void *object)
{
	struct inode_info *info = object;

	info->state = 17;
	constructed++;
}

static int __init memory_init(void)
{
	struct inode_info *info, *flexible;
	void (*release)(const void *) = kvfree;
	void *many[8];
	u32 *array;
	char *s, *t;
	int i;

	cache = kmem_cache_create("inode_info", sizeof(struct inode_info), 0,
				  SLAB_RECLAIM_ACCOUNT | SLAB_PANIC, init_once);
	if (!cache)
		return -ENOMEM;
	info = kmem_cache_alloc(cache, GFP_KERNEL);
	if (!info || info->state != 17 || !constructed)
		return -ENOMEM;
	kmem_cache_free(cache, info);
	if (!kmem_cache_alloc_bulk(cache, GFP_KERNEL, ARRAY_SIZE(many), many))
		return -ENOMEM;
	kmem_cache_free_bulk(cache, ARRAY_SIZE(many), many);
	kmem_cache_shrink(cache);
	if (kmem_cache_size(cache) != sizeof(struct inode_info))
		return -EINVAL;

	flexible = kzalloc(struct_size(flexible, blocks, 10), GFP_KERNEL);
	if (!flexible)
		return -ENOMEM;
	flexible->nr = 10;
	flexible->blocks[9] = 1;
	if (ksize(flexible) < struct_size(flexible, blocks, 10))
		return -EINVAL;
	kfree_sensitive(flexible);

	array = kcalloc(4, sizeof(*array), GFP_KERNEL);
	if (!array || array[3])
		return -ENOMEM;
	array[3] = 3;
	array = krealloc(array, 100 * sizeof(*array), GFP_KERNEL | __GFP_ZERO);
	if (!array || array[3] != 3)
		return -ENOMEM;
	array = krealloc_array(array, 200, sizeof(*array), GFP_KERNEL);
	kfree(array);
	if (kmalloc_array(SIZE_MAX, 2, GFP_KERNEL | __GFP_NOWARN))
		return -EINVAL;
	kfree(kmalloc_node(10, GFP_KERNEL, NUMA_NO_NODE));

	s = kstrdup("  trim me \n", GFP_KERNEL);
	t = kasprintf(GFP_KERNEL, "<%s>", strim(s));
	if (!t || strcmp(t, "<trim me>") || !str_has_prefix(t, "<trim"))
		return -EINVAL;
	kfree(s);
	kfree(t);
	s = kmemdup("abc", 4, GFP_KERNEL);
	t = kstrndup("abcdef", 3, GFP_KERNEL);
	if (!s || !t || !sysfs_streq(s, "abc\n") || strcmp(s, t) || match_string((const char *[]){"x", "abc"}, 2, s) != 1)
		return -EINVAL;
	kfree_const(s);
	kfree(t);

	s = vmalloc(3 * PAGE_SIZE);
	if (!s || !is_vmalloc_addr(s))
		return -ENOMEM;
	vfree(s);
	s = kvmalloc(10 * PAGE_SIZE, GFP_KERNEL);
	release(s);
	s = (char *)__get_free_page(GFP_KERNEL | __GFP_ZERO);
	for (i = 0; i < 4; i++)
		s[i * 1000] = 'x';
	if (!PAGE_ALIGNED(s))
		return -EINVAL;
	free_page((unsigned long)s);
	kfree(NULL);
	pr_info("memory: passed\n");
	return 0;
}

static void __exit memory_exit(void)
{
	kmem_cache_destroy(cache);
}

module_init(memory_init);
module_exit(memory_exit);
MODULE_LICENSE("GPL");
