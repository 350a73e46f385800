/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Checks of slab caches, by their flags. A slot of such a cache is:
 *
 *   left zone | object | right zone | the allocation, the release
 *
 * The zones show writes outside of the object, and whether it is allocated. A free object is filled
 * with poison, which shows writes after the release. A report names the cache, the object, what is
 * wrong and, with SLAB_STORE_USER, where the object was allocated and freed; then the slot is made
 * right, and the program goes on.
 */
#include <linux/printk.h>
#include <linux/sched.h>

#include "caches.h"

enum { ZONE = 16, ZONE_FREE = 0xbb, ZONE_ALLOCATED = 0xcc, POISON = 0x6b, POISON_END = 0xa5 };

struct event {
	const void *caller;
	int thread;
};

struct track {
	struct event allocated, freed;
};

static char *object_of(const struct kmem_cache *cache, char *slot)
{
	return slot + cache->offset;
}

static unsigned char *left_zone(const struct kmem_cache *cache, char *slot)
{
	return (unsigned char *)object_of(cache, slot) - ZONE;
}

static unsigned char *right_zone(const struct kmem_cache *cache, char *slot)
{
	return (unsigned char *)object_of(cache, slot) + cache->object_size;
}

static struct track *track_of(const struct kmem_cache *cache, char *slot)
{
	return (struct track *)(void *)(slot + cache->stride) - 1;
}

static bool has_poison(const struct kmem_cache *cache)
{
	/* A constructed object stays constructed, and readers may still look at a freed one. */
	return (cache->flags & SLAB_POISON) && !cache->ctor && !(cache->flags & SLAB_TYPESAFE_BY_RCU);
}

void uw_slab_lay_out(struct kmem_cache *cache)
{
	size_t align = cache->align, behind = 0;

	if (!(cache->flags & UW_SLAB_CHECKS)) {
		cache->stride = ALIGN(cache->object_size, align);
		return;
	}
	/* The zones also say whether an object is allocated, so every checked cache has them. */
	cache->offset = ALIGN((size_t)ZONE, align);
	behind += ZONE;
	align = max(align, __alignof__(struct track));
	cache->stride = ALIGN(cache->offset + cache->object_size + behind + sizeof(struct track), align);
	cache->align = align;
}

static void set_zones(struct kmem_cache *cache, char *slot, int state)
{
	memset(left_zone(cache, slot), state, ZONE);
	memset(right_zone(cache, slot), state, ZONE);
}

static void set_poison(struct kmem_cache *cache, char *slot)
{
	char *object = object_of(cache, slot);

	if (!has_poison(cache) || cache->object_size == 0)
		return;
	memset(object, POISON, cache->object_size - 1);
	object[cache->object_size - 1] = (char)POISON_END;
}

void uw_slab_prepare(struct kmem_cache *cache, char *slot)
{
	if (cache->flags & UW_SLAB_CHECKS) {
		set_zones(cache, slot, ZONE_FREE);
		set_poison(cache, slot);
	}
	if (cache->ctor)
		cache->ctor(object_of(cache, slot));
}

static void show(const struct kmem_cache *cache, char *slot)
{
	const struct track *track = track_of(cache, slot);

	if (!(cache->flags & SLAB_STORE_USER))
		return;
	if (track->allocated.caller)
		pr_err("  allocated in %pS by thread %d\n", track->allocated.caller, track->allocated.thread);
	if (track->freed.caller)
		pr_err("  last freed in %pS by thread %d\n", track->freed.caller, track->freed.thread);
}

static void report(const struct kmem_cache *cache, char *slot, const char *what)
{
	pr_err("BUG %s: object %px: %s\n", cache->name, object_of(cache, slot), what);
	show(cache, slot);
}

static bool is_filled(const unsigned char *from, size_t size, unsigned char with)
{
	while (size > 0 && from[size - 1] == with)
		size--;
	return size == 0;
}

static void check_zones(struct kmem_cache *cache, char *slot, unsigned char state)
{
	if (!(cache->flags & SLAB_RED_ZONE))
		return;
	if (!is_filled(left_zone(cache, slot), ZONE, state))
		report(cache, slot, "the red zone before it was overwritten");
	if (!is_filled(right_zone(cache, slot), ZONE, state))
		report(cache, slot, "the red zone behind it was overwritten");
}

void uw_slab_check_alloc(struct kmem_cache *cache, char *slot, const void *caller)
{
	const unsigned char *object = (unsigned char *)object_of(cache, slot);
	size_t size = cache->object_size;

	check_zones(cache, slot, ZONE_FREE);
	if (has_poison(cache) && !(is_filled(object, size - 1, POISON) && object[size - 1] == POISON_END)) {
		report(cache, slot, "it was written to after it was freed");
		set_poison(cache, slot);
	}
	set_zones(cache, slot, ZONE_ALLOCATED);
	if (cache->flags & SLAB_STORE_USER)
		track_of(cache, slot)->allocated = (struct event){ caller, task_pid_nr(current) };
}

bool uw_slab_check_free(struct kmem_cache *cache, char *slot, const void *caller)
{
	/* A byte of the zone that overwrites rarely reach. */
	if (left_zone(cache, slot)[0] == ZONE_FREE) {
		report(cache, slot, "it was freed, and is freed again");
		return false;
	}
	check_zones(cache, slot, ZONE_ALLOCATED);
	if (cache->flags & SLAB_STORE_USER)
		track_of(cache, slot)->freed = (struct event){ caller, task_pid_nr(current) };
	set_zones(cache, slot, ZONE_FREE);
	set_poison(cache, slot);
	return true;
}

/* The list of a cache with many of them is cut. */
#define LISTED 8
static __thread unsigned int listed;

static void list_one(struct kmem_cache *cache, char *slot)
{
	if (left_zone(cache, slot)[0] == ZONE_FREE || listed++ >= LISTED)
		return;
	report(cache, slot, "it is still allocated");
}

void uw_slab_list_allocated(struct kmem_cache *cache)
{
	if (!(cache->flags & UW_SLAB_CHECKS) || !cache->slab)
		return;
	listed = 0;
	uw_slab_each_slot(cache, list_one);
}
