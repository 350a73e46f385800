// SPDX-License-Identifier: MIT OR Apache-2.0
/* Memory pools over kmalloc, over a slab cache and with functions of their own. */
#include <linux/mempool.h>
#include <linux/module.h>
#include <linux/slab.h>

#define RESERVE 4

struct request {
	int id;
	char payload[60];
};

static struct kmem_cache *cache;
static int outstanding;

static void *counted_alloc(gfp_t gfp, void *data)
{
	/* The underlying allocator fails when more than RESERVE elements exist. */
	if (outstanding == RESERVE)
		return NULL;
	outstanding++;
	return kmalloc(*(size_t *)data, gfp);
}

static void counted_free(void *element, void *data)
{
	outstanding--;
	kfree(element);
}

static int __init mempools_init(void)
{
	static size_t size = sizeof(struct request);
	struct request *requests[RESERVE];
	mempool_t *pool, *bytes;
	mempool_t embedded;
	void *element;
	int i, ret = -ENOMEM;

	cache = KMEM_CACHE(request, SLAB_HWCACHE_ALIGN);
	if (!cache)
		return -ENOMEM;
	pool = mempool_create_slab_pool(RESERVE, cache);
	if (!pool)
		goto no_pool;
	for (i = 0; i < RESERVE; i++) {
		requests[i] = mempool_alloc(pool, GFP_NOIO);
		requests[i]->id = i;
	}
	for (i = 0; i < RESERVE; i++)
		mempool_free(requests[i], pool);
	if (mempool_resize(pool, RESERVE * 2))
		goto out;
	mempool_destroy(pool);
	mempool_destroy(NULL);

	bytes = mempool_create_kmalloc_pool(2, 512);
	if (!bytes)
		goto no_pool;
	element = mempool_alloc(bytes, GFP_KERNEL);
	memset(element, 0, 512);
	mempool_free(element, bytes);
	mempool_free(NULL, bytes);
	mempool_destroy(bytes);

	if (mempool_init(&embedded, RESERVE, counted_alloc, counted_free, &size))
		goto no_pool;
	if (outstanding != RESERVE)
		pr_err("failed: %d elements\n", outstanding);
	for (i = 0; i < RESERVE; i++)
		requests[i] = mempool_alloc(&embedded, GFP_ATOMIC);
	/* The reserve is used up, and an atomic allocation does not wait. */
	if (mempool_alloc(&embedded, GFP_ATOMIC))
		pr_err("failed: the pool has more than its reserve\n");
	for (i = 0; i < RESERVE; i++)
		mempool_free(requests[i], &embedded);
	mempool_exit(&embedded);
	if (!outstanding)
		pr_info("mempool: passed\n");
	return 0;
out:
	mempool_destroy(pool);
no_pool:
	kmem_cache_destroy(cache);
	return ret;
}

static void __exit mempools_exit(void)
{
	kmem_cache_destroy(cache);
}

module_init(mempools_init);
module_exit(mempools_exit);
MODULE_LICENSE("GPL");
