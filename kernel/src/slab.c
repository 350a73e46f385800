/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Slab caches and kmalloc(), on the per-CPU caches of the library. kmalloc() has a cache for each
 * size class; larger sizes, and everything where slab_memory.c has no range, come from malloc().
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <linux/bitops.h>
#include <linux/cache.h>
#include <linux/log2.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>

#include "caches.h"
#include "frees.h"

/* Sizes up to 192 in steps, then powers of two. */
#define CLASSES 12
#define STEP 16
static const unsigned short sizes[CLASSES] = { 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192 };
/* The class of a size from 1 to 192, by (size - 1) / STEP. */
static const unsigned char small_classes[192 / STEP] = { 0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5 };
#define KMALLOC_CACHED 8192

/* NULL until the first allocation of the class. */
static struct kmem_cache *classes[CLASSES];

/* Sizes above 0. */
static inline unsigned int class_of(size_t size)
{
	if (size <= 192)
		return small_classes[(size - 1) / STEP];
	return 6 + (unsigned int)fls64((size - 1) >> 8);
}

/* The alignment that the kernel promises for a size: a power of two is aligned to itself. */
static size_t natural_align(size_t size)
{
	size_t lowest = size & -size;

	return max(lowest, (size_t)ARCH_KMALLOC_MINALIGN);
}

static void free_cache(struct kmem_cache *cache)
{
	free((void *)(uintptr_t)cache->name);
	free(cache);
}

static struct kmem_cache *create(const char *name, size_t size, size_t align, slab_flags_t flags, void (*ctor)(void *))
{
	struct kmem_cache *cache = calloc(1, sizeof(*cache));
	struct uw_slab_source source = { cache, uw_slab_memory_alloc, uw_slab_memory_free };

	if (!cache)
		return NULL;
	cache->name = strdup(name);
	cache->object_size = size;
	cache->align = max(align, sizeof(void *));
	cache->flags = flags;
	cache->ctor = ctor;
	uw_slab_lay_out(cache);
	if (uw_slab_has_memory())
		cache->slab = uw_slab_create(cache->stride, cache->align, source);
	if (!cache->name || (uw_slab_has_memory() && !cache->slab)) {
		free_cache(cache);
		return NULL;
	}
	return cache;
}

/* The cache of a class, made by the first call. NULL if there is no memory. */
static noinline struct kmem_cache *make_class(unsigned int class)
{
	struct kmem_cache *cache, *made = NULL;
	char name[32];

	snprintf(name, sizeof(name), "kmalloc-%u", sizes[class]);
	cache = create(name, sizes[class], natural_align(sizes[class]), 0, NULL);
	/* No lock is held meanwhile: the creation waits for locks of the library. */
	if (cache && !__atomic_compare_exchange_n(&classes[class], &made, cache, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		if (cache->slab)
			uw_slab_destroy(cache->slab);
		free_cache(cache);
		return made;
	}
	return cache;
}

/*
 * Clears a block of malloc() from `from` to the end that malloc_usable_size() tells. Not inlined: there a compiler
 * would take the requested size for the size of the block.
 */
static noinline void clear_from(char *block, size_t from)
{
	size_t has = malloc_usable_size(block);

	if (has > from)
		memset(block + from, 0, has - from);
}

/*
 * Memory of malloc(), aligned as the kernel aligns it. With __GFP_ZERO all of it is zero, also what exceeds the
 * requested size: a later krealloc() in place finds zeros there.
 */
static noinline void *from_system(size_t size, size_t align, gfp_t flags)
{
	size_t zeros = 0;
	void *memory;

	if (align <= __alignof__(max_align_t)) {
		zeros = flags & __GFP_ZERO ? size : 0;
		memory = zeros ? calloc(1, size) : malloc(size);
	} else if (size <= SIZE_MAX / 2) {
		memory = aligned_alloc(align, ALIGN(size, align));
	} else {
		return NULL;
	}
	if (memory && (flags & __GFP_ZERO))
		clear_from(memory, zeros);
	return memory;
}

/* Pages of the kernel are this large, and a larger kmalloc() is made of them. */
#define LARGE_ALIGN ((size_t)4096)

static noinline void *allocate_large(size_t size, gfp_t flags)
{
	if (size == 0)
		return ZERO_SIZE_PTR;
	if (size <= KMALLOC_CACHED) /* no range */
		return from_system(size, is_power_of_2(size) ? size : 1, flags);
	return from_system(size, is_power_of_2(size) ? min(size, KMALLOC_MAX_SIZE) : LARGE_ALIGN, flags);
}

void *uw_kernel_kmalloc(size_t size, gfp_t flags)
{
	struct kmem_cache *cache;
	unsigned int class;
	void *memory;

	if (unlikely(size - 1 >= KMALLOC_CACHED))
		return allocate_large(size, flags);
	class = class_of(size);
	cache = __atomic_load_n(&classes[class], __ATOMIC_ACQUIRE);
	if (unlikely(!cache)) {
		cache = make_class(class);
		if (!cache)
			return NULL;
	}
	if (unlikely(!cache->slab))
		return allocate_large(size, flags);
	memory = uw_slab_alloc(cache->slab);
	/* All of it: a later krealloc() in place finds zeros there. */
	if ((flags & __GFP_ZERO) && likely(memory))
		memset(memory, 0, cache->object_size);
	return memory;
}

void *uw_kernel_vmalloc(size_t size, gfp_t flags)
{
	return size == 0 ? NULL : from_system(size, LARGE_ALIGN, flags);
}

size_t uw_kernel_size(const void *ptr)
{
	const struct kmem_cache *cache;

	if (ZERO_OR_NULL_PTR(ptr))
		return 0;
	cache = uw_slab_owner(ptr);
	return cache ? cache->object_size : malloc_usable_size((void *)(uintptr_t)ptr);
}

static noinline void free_checked(struct kmem_cache *cache, void *object, const void *caller)
{
	char *slot = (char *)object - cache->offset;

	if (uw_slab_check_free(cache, slot, caller))
		uw_slab_free(cache->slab, slot);
}

static noinline void free_to_system(void *ptr)
{
	if (ZERO_OR_NULL_PTR(ptr))
		return;
	uw_debug_check_freed(ptr, malloc_usable_size(ptr));
	free(ptr);
}

void uw_kernel_free(const void *ptr)
{
	void *object = (void *)(uintptr_t)ptr;
	struct kmem_cache *cache = uw_slab_owner(object);

	if (unlikely(!cache))
		free_to_system(object);
	else if (unlikely(cache->flags & UW_SLAB_CHECKS))
		free_checked(cache, object, __builtin_return_address(0));
	else
		uw_slab_free(cache->slab, object);
}

void *uw_kernel_krealloc(const void *ptr, size_t size, gfp_t flags)
{
	size_t has = uw_kernel_size(ptr);
	void *moved;

	if (size == 0) {
		uw_kernel_free(ptr);
		return ZERO_SIZE_PTR;
	}
	/* A large block that shrinks to a small one is moved, so that its memory is returned. */
	if (has >= size && (has <= KMALLOC_CACHED || has / 2 < size)) {
		/* A later call that grows it in place finds zeros there. */
		if (flags & __GFP_ZERO)
			memset((char *)(uintptr_t)ptr + size, 0, has - size);
		return (void *)(uintptr_t)ptr;
	}
	moved = uw_kernel_kmalloc(size, flags);
	if (!moved)
		return NULL;
	if (has > 0) {
		memcpy(moved, ptr, min(has, size));
		uw_kernel_free(ptr);
	}
	return moved;
}

static struct kmem_cache *refuse(const char *name, slab_flags_t flags, const char *why)
{
	pr_err("kmem_cache_create(%s): %s\n", name ? name : "NULL", why);
	if (flags & SLAB_PANIC)
		uw_kernel_bug("a cache that must exist cannot be created", "kmem_cache_create", 0);
	return NULL;
}

struct kmem_cache *uw_kernel_cache_create(const char *name, size_t size, size_t align, slab_flags_t flags,
					  void (*ctor)(void *))
{
	struct kmem_cache *cache;

	if (!name || size == 0)
		return refuse(name, flags, "a cache has a name, and objects of at least 1 byte");
	if (size > KMALLOC_MAX_SIZE)
		return refuse(name, flags, "an object has at most KMALLOC_MAX_SIZE bytes");
	if (align > LARGE_ALIGN || (align & (align - 1)))
		return refuse(name, flags, "the alignment is 0 or a power of 2 up to 4096");
	if ((flags & SLAB_HWCACHE_ALIGN) && size > SMP_CACHE_BYTES / 2)
		align = max(align, (size_t)SMP_CACHE_BYTES);
	cache = create(name, size, align, flags, ctor);
	return cache ? cache : refuse(name, flags, "no memory");
}

size_t uw_kernel_cache_size(const struct kmem_cache *cache)
{
	return cache->object_size;
}

static noinline void *alloc_from_system(struct kmem_cache *cache, gfp_t flags)
{
	void *object = from_system(cache->object_size, cache->align, flags);

	if (object && cache->ctor)
		cache->ctor(object);
	return object;
}

void *uw_kernel_cache_alloc(struct kmem_cache *cache, gfp_t flags)
{
	char *slot;

	if (unlikely(!cache->slab))
		return alloc_from_system(cache, flags);
	slot = uw_slab_alloc(cache->slab);
	if (unlikely(!slot))
		return NULL;
	if (unlikely(cache->flags & UW_SLAB_CHECKS))
		uw_slab_check_alloc(cache, slot, __builtin_return_address(0));
	slot += cache->offset;
	if (flags & __GFP_ZERO)
		memset(slot, 0, cache->object_size);
	return slot;
}

void uw_kernel_cache_free(struct kmem_cache *cache, void *object)
{
	struct kmem_cache *owner;

	if (!object)
		return;
	if (unlikely(!cache->slab)) {
		free_to_system(object);
		return;
	}
	owner = uw_slab_owner(object);
	if (unlikely(owner != cache)) {
		pr_err("BUG %s: object %px is freed here, and belongs to %s\n", cache->name, object,
		       owner ? owner->name : "no cache");
		return;
	}
	if (unlikely(cache->flags & UW_SLAB_CHECKS))
		free_checked(cache, object, __builtin_return_address(0));
	else
		uw_slab_free(cache->slab, object);
}

int uw_kernel_cache_shrink(struct kmem_cache *cache)
{
	/* Readers may look at freed objects until the end of a grace period. */
	if (cache->flags & SLAB_TYPESAFE_BY_RCU)
		return 0;
	if (cache->slab)
		uw_slab_shrink(cache->slab);
	return 0;
}

static void destroy(struct kmem_cache *cache)
{
	size_t out = cache->slab ? uw_slab_destroy(cache->slab) : 0;

	if (out > 0) {
		pr_err("BUG %s: kmem_cache_destroy() with %zu objects still allocated; the cache is kept\n", cache->name, out);
		uw_slab_list_allocated(cache);
		return;
	}
	free_cache(cache);
}

static void destroy_late(struct rcu_head *head)
{
	destroy(container_of(head, struct kmem_cache, end));
}

void uw_kernel_cache_destroy(struct kmem_cache *cache)
{
	bool has_readers;

	if (!cache)
		return;
	has_readers = cache->flags & SLAB_TYPESAFE_BY_RCU;
	/* Objects of the cache may be among those of kfree_rcu(). */
	if ((has_readers || uw_kernel_has_frees()) && !uw_kernel_wait_for_callbacks()) {
		/* Behind the callbacks that the caller cannot wait for. */
		if (uw_kernel_try_call_rcu(&cache->end, destroy_late))
			return;
		/* The refusal is reported. The memory stays: no grace period will pass for its readers. */
		if (has_readers)
			return;
	}
	destroy(cache);
}
