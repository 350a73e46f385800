/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The parts of the slab: caches (slab.c), their memory (slab_memory.c), their checks (slab_debug.c). */
#ifndef UWORK_KERNEL_CACHES_H
#define UWORK_KERNEL_CACHES_H

#include <linux/rcupdate.h>
#include <linux/slab.h>

/* Functions in Rust; keep identical to crates/capi/src/kernel/slab.rs and the struct Source there. */
struct uw_slab;

struct uw_slab_source {
	void *context;
	void *(*alloc)(void *context, size_t size, size_t align);
	void (*free)(void *context, void *memory, size_t size);
};

struct uw_slab *uw_slab_create(size_t size, size_t align, struct uw_slab_source source);
void *uw_slab_alloc(const struct uw_slab *slab);
void uw_slab_free(const struct uw_slab *slab, void *object);
size_t uw_slab_shrink(const struct uw_slab *slab);
/* Returns the number of allocated objects. Has freed the cache if it is 0. */
size_t uw_slab_destroy(struct uw_slab *slab);
int uw_slab_is_watched(void);

/* All members except `end` are constant after the creation. */
struct kmem_cache {
	const char *name;
	/* As requested. */
	size_t object_size;
	/* From one slot to the next, and from a slot's begin to its object. */
	size_t stride, offset;
	slab_flags_t flags;
	void (*ctor)(void *);
	/* NULL: each object is an allocation of malloc(). */
	struct uw_slab *slab;
	size_t align;
	/* Of a destruction that its caller could not wait for. */
	struct rcu_head end;
};

/* The flags that make a slot larger than its object, or change a free object. */
#define UW_SLAB_CHECKS (SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)

/*
 * A range of addresses for the memory of all caches, so that an address tells its cache. Does not
 * exist where the system refuses it, in debug mode, and in instrumented libraries: there every
 * object is an allocation of malloc(), which the tools watch.
 */
#define UW_SLAB_GRANULE ((size_t)64 << 10)

bool uw_slab_has_memory(void);
/* A source of uw_slab_create() for this cache. */
void *uw_slab_memory_alloc(void *cache, size_t size, size_t align);
void uw_slab_memory_free(void *cache, void *memory, size_t size);
/* Calls a function for each slot of a cache, while the cache is in no other use. */
void uw_slab_each_slot(struct kmem_cache *cache, void (*visit)(struct kmem_cache *cache, char *slot));

struct uw_slab_granule {
	struct kmem_cache *owner;
	/* The size of the run that begins here, in bytes; 0 in the run's other granules. */
	size_t run;
};

/* Zero size: there is no range. */
extern char *uw_slab_range;
extern size_t uw_slab_range_size;
extern struct uw_slab_granule *uw_slab_granules;

/* The cache of an object; NULL if the address is not in the range. */
static inline struct kmem_cache *uw_slab_owner(const void *object)
{
	size_t at = (size_t)((const char *)object - __atomic_load_n(&uw_slab_range, __ATOMIC_RELAXED));

	if (at >= __atomic_load_n(&uw_slab_range_size, __ATOMIC_RELAXED))
		return NULL;
	return __atomic_load_n(&uw_slab_granules[at / UW_SLAB_GRANULE].owner, __ATOMIC_RELAXED);
}

/* slab_debug.c: the layout of a slot, and what is written and compared. */
void uw_slab_lay_out(struct kmem_cache *cache);
void uw_slab_prepare(struct kmem_cache *cache, char *slot);
void uw_slab_check_alloc(struct kmem_cache *cache, char *slot, const void *caller);
/* False: the object is not allocated. This has been reported, and it must not be freed. */
bool uw_slab_check_free(struct kmem_cache *cache, char *slot, const void *caller);
/* Reports the objects that are allocated. */
void uw_slab_list_allocated(struct kmem_cache *cache);

#endif
