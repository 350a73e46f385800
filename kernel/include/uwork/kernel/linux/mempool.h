/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Pools with a reserve: an allocation that may wait does not fail. */
#ifndef UWORK_KERNEL_LINUX_MEMPOOL_H
#define UWORK_KERNEL_LINUX_MEMPOOL_H

#include "../uw_kernel_slab.h"
#include <linux/spinlock.h>
#include <linux/wait.h>

typedef void *(mempool_alloc_t)(gfp_t gfp, void *pool_data);
typedef void (mempool_free_t)(void *element, void *pool_data);

typedef struct mempool {
	spinlock_t lock;
	int min_nr;
	/* The elements of the reserve that are available. */
	int curr_nr;
	void **elements;
	void *pool_data;
	mempool_alloc_t *alloc;
	mempool_free_t *free;
	struct wait_queue_head wait;
} mempool_t;

#ifdef __cplusplus
extern "C" {
#endif
/* Allocates the reserve. 0 or -ENOMEM. */
int mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc, mempool_free_t *free_it, void *pool_data) UW_KERNEL_NAME(mempool_init);
void mempool_exit(mempool_t *pool) UW_KERNEL_NAME(mempool_exit);
/* NULL if there is no memory. */
mempool_t *mempool_create(int min_nr, mempool_alloc_t *alloc, mempool_free_t *free_it, void *pool_data) UW_KERNEL_NAME(mempool_create);
void mempool_destroy(mempool_t *pool) UW_KERNEL_NAME(mempool_destroy);
/* 0 or -ENOMEM. Only one call at a time. */
int mempool_resize(mempool_t *pool, int new_min_nr) UW_KERNEL_NAME(mempool_resize);
/*
 * Takes an element of the allocator, or of the reserve if that fails. If both are empty, waits for
 * a mempool_free(); with flags that forbid waiting, returns NULL.
 */
void *mempool_alloc(mempool_t *pool, gfp_t gfp) UW_KERNEL_NAME(mempool_alloc);
/* An element of the reserve, or NULL. */
void *mempool_alloc_preallocated(mempool_t *pool) UW_KERNEL_NAME(mempool_alloc_preallocated);
/* Fills the reserve before it gives memory back. */
void mempool_free(void *element, mempool_t *pool) UW_KERNEL_NAME(mempool_free);

/* pool_data is a size, or a slab cache. */
void *mempool_kmalloc(gfp_t gfp, void *pool_data) UW_KERNEL_NAME(mempool_kmalloc);
void mempool_kfree(void *element, void *pool_data) UW_KERNEL_NAME(mempool_kfree);
void *mempool_alloc_slab(gfp_t gfp, void *pool_data) UW_KERNEL_NAME(mempool_alloc_slab);
void mempool_free_slab(void *element, void *pool_data) UW_KERNEL_NAME(mempool_free_slab);
/* pool_data is the order. */
void *mempool_alloc_pages(gfp_t gfp, void *pool_data) UW_KERNEL_NAME(mempool_alloc_pages);
void mempool_free_pages(void *element, void *pool_data) UW_KERNEL_NAME(mempool_free_pages);
#ifdef __cplusplus
}
#endif

static inline bool mempool_initialized(const mempool_t *pool)
{
	return pool->elements != NULL;
}

static inline bool mempool_is_saturated(const mempool_t *pool)
{
	return READ_ONCE(pool->curr_nr) >= pool->min_nr;
}

static inline mempool_t *mempool_create_node(int min_nr, mempool_alloc_t *alloc, mempool_free_t *free_it,
					     void *pool_data, gfp_t gfp, int node)
{
	(void)gfp;
	(void)node;
	return mempool_create(min_nr, alloc, free_it, pool_data);
}

#define mempool_init_kmalloc_pool(pool, min_nr, size) \
	mempool_init((pool), (min_nr), mempool_kmalloc, mempool_kfree, (void *)(uintptr_t)(size))
#define mempool_create_kmalloc_pool(min_nr, size) \
	mempool_create((min_nr), mempool_kmalloc, mempool_kfree, (void *)(uintptr_t)(size))
#define mempool_init_slab_pool(pool, min_nr, cache) \
	mempool_init((pool), (min_nr), mempool_alloc_slab, mempool_free_slab, (cache))
#define mempool_create_slab_pool(min_nr, cache) \
	mempool_create((min_nr), mempool_alloc_slab, mempool_free_slab, (cache))
#define mempool_init_page_pool(pool, min_nr, order) \
	mempool_init((pool), (min_nr), mempool_alloc_pages, mempool_free_pages, (void *)(uintptr_t)(order))
#define mempool_create_page_pool(min_nr, order) \
	mempool_create((min_nr), mempool_alloc_pages, mempool_free_pages, (void *)(uintptr_t)(order))

#endif
