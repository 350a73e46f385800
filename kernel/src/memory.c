/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory allocation. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <linux/slab.h>

struct kmem_cache {
	/* As requested, and rounded up to the alignment. */
	size_t object_size;
	size_t size;
	size_t align;
	void (*ctor)(void *);
};

size_t uw_kernel_size(const void *ptr)
{
	return ptr ? malloc_usable_size((void *)(uintptr_t)ptr) : 0;
}

void uw_kernel_free(const void *ptr)
{
	if (!ptr)
		return;
	uw_debug_check_freed(ptr, uw_kernel_size(ptr));
	free((void *)(uintptr_t)ptr);
}

struct kmem_cache *uw_kernel_cache_create(const char *name, size_t size, size_t align, void (*ctor)(void *))
{
	struct kmem_cache *cache = malloc(sizeof(*cache));

	(void)name;
	if (cache) {
		cache->object_size = size;
		cache->align = align < sizeof(void *) ? sizeof(void *) : align;
		cache->size = (size + cache->align - 1) / cache->align * cache->align;
		cache->ctor = ctor;
	}
	return cache;
}

size_t uw_kernel_cache_size(const struct kmem_cache *cache)
{
	return cache->object_size;
}

void uw_kernel_cache_destroy(struct kmem_cache *cache)
{
	free(cache);
}

void *uw_kernel_cache_alloc(struct kmem_cache *cache, bool zero)
{
	void *ptr = aligned_alloc(cache->align, cache->size);

	if (ptr && zero)
		memset(ptr, 0, cache->size);
	if (ptr && cache->ctor)
		cache->ctor(ptr);
	return ptr;
}
