/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Pools with a reserve. */
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/slab.h>

/* An element of the reserve; NULL if it is empty. */
static void *take(mempool_t *pool)
{
	void *element = NULL;

	spin_lock(&pool->lock);
	if (pool->curr_nr > 0) {
		element = pool->elements[pool->curr_nr - 1];
		WRITE_ONCE(pool->curr_nr, pool->curr_nr - 1);
	}
	spin_unlock(&pool->lock);
	return element;
}

/* Adds an element to the reserve. Returns whether there was room. */
static bool put(mempool_t *pool, void *element)
{
	bool has_room;

	spin_lock(&pool->lock);
	has_room = pool->curr_nr < pool->min_nr;
	if (has_room) {
		pool->elements[pool->curr_nr] = element;
		WRITE_ONCE(pool->curr_nr, pool->curr_nr + 1);
	}
	spin_unlock(&pool->lock);
	return has_room;
}

/* Fills the reserve. Takes new elements from the allocator, never from the reserve. */
static int fill(mempool_t *pool)
{
	while (!mempool_is_saturated(pool)) {
		void *element = pool->alloc(GFP_KERNEL, pool->pool_data);

		if (!element)
			return -ENOMEM;
		if (!put(pool, element))
			pool->free(element, pool->pool_data);
	}
	return 0;
}

int mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc, mempool_free_t *free_it, void *pool_data)
{
	spin_lock_init(&pool->lock);
	init_waitqueue_head(&pool->wait);
	pool->min_nr = min_nr;
	pool->curr_nr = 0;
	pool->pool_data = pool_data;
	pool->alloc = alloc;
	pool->free = free_it;
	pool->elements = kcalloc((size_t)(min_nr > 0 ? min_nr : 1), sizeof(void *), GFP_KERNEL);
	if (!pool->elements)
		return -ENOMEM;
	if (fill(pool) != 0) {
		mempool_exit(pool);
		return -ENOMEM;
	}
	return 0;
}

void mempool_exit(mempool_t *pool)
{
	void *element;

	while ((element = take(pool)))
		pool->free(element, pool->pool_data);
	kfree(pool->elements);
	pool->elements = NULL;
}

mempool_t *mempool_create(int min_nr, mempool_alloc_t *alloc, mempool_free_t *free_it, void *pool_data)
{
	mempool_t *pool = kzalloc(sizeof(*pool), GFP_KERNEL);

	if (pool && mempool_init(pool, min_nr, alloc, free_it, pool_data) != 0) {
		kfree(pool);
		pool = NULL;
	}
	return pool;
}

void mempool_destroy(mempool_t *pool)
{
	if (!pool)
		return;
	mempool_exit(pool);
	kfree(pool);
}

int mempool_resize(mempool_t *pool, int new_min_nr)
{
	void **larger = kcalloc((size_t)(new_min_nr > 0 ? new_min_nr : 1), sizeof(void *), GFP_KERNEL), **old;
	void *element;

	if (!larger)
		return -ENOMEM;
	/* The elements that no longer fit are freed without the lock. */
	while (READ_ONCE(pool->curr_nr) > new_min_nr && (element = take(pool)))
		pool->free(element, pool->pool_data);
	spin_lock(&pool->lock);
	if (pool->curr_nr > new_min_nr) {
		spin_unlock(&pool->lock);
		kfree(larger);
		return mempool_resize(pool, new_min_nr);
	}
	memcpy(larger, pool->elements, (size_t)pool->curr_nr * sizeof(void *));
	old = pool->elements;
	pool->elements = larger;
	pool->min_nr = new_min_nr;
	spin_unlock(&pool->lock);
	kfree(old);
	return fill(pool);
}

void *mempool_alloc_preallocated(mempool_t *pool)
{
	return take(pool);
}

void *mempool_alloc(mempool_t *pool, gfp_t gfp)
{
	void *element = pool->alloc(gfp, pool->pool_data);

	if (!element)
		element = take(pool);
	if (!element && gfpflags_allow_blocking(gfp))
		wait_event(pool->wait, (element = take(pool)) || (element = pool->alloc(gfp, pool->pool_data)));
	return element;
}

void mempool_free(void *element, mempool_t *pool)
{
	if (!element)
		return;
	if (!put(pool, element))
		pool->free(element, pool->pool_data);
	/* Also when memory was given back: a waiter tries the allocator, too. */
	if (wq_has_sleeper(&pool->wait))
		wake_up(&pool->wait);
}

void *mempool_kmalloc(gfp_t gfp, void *pool_data)
{
	return kmalloc((size_t)(uintptr_t)pool_data, gfp);
}

void mempool_kfree(void *element, void *pool_data)
{
	(void)pool_data;
	kfree(element);
}

void *mempool_alloc_slab(gfp_t gfp, void *pool_data)
{
	return kmem_cache_alloc((struct kmem_cache *)pool_data, gfp);
}

void mempool_free_slab(void *element, void *pool_data)
{
	kmem_cache_free((struct kmem_cache *)pool_data, element);
}

void *mempool_alloc_pages(gfp_t gfp, void *pool_data)
{
	return alloc_pages(gfp, (unsigned int)(uintptr_t)pool_data);
}

void mempool_free_pages(void *element, void *pool_data)
{
	__free_pages((struct page *)element, (unsigned int)(uintptr_t)pool_data);
}
