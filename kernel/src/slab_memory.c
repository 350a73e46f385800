/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The memory of slab caches: one range of addresses in granules, each of which belongs to one cache.
 * Memory is requested from the system for the runs of granules that are in use, and returned with
 * them. Runs are large and few, so a free one is found by a scan.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "caches.h"
#include "fork.h"

/* gcc defines macros, clang has features. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_INSTRUMENTED true
#elif defined(__has_feature)
#define IS_INSTRUMENTED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define IS_INSTRUMENTED false
#endif

/* Addresses cost nothing. Where they are limited, the range is smaller. */
#define RANGE_MAX ((size_t)64 << 30)
#define RANGE_MIN ((size_t)64 << 20)

char *uw_slab_range;
size_t uw_slab_range_size;
struct uw_slab_granule *uw_slab_granules;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guard of both, and of changes of the granules: the lock. All granules below `full` are in use. */
static size_t full;
/* All granules from here on were never in use. */
static size_t fresh;

void uw_slab_fork(enum uw_fork at)
{
	uw_fork_mutex(&lock, at);
}

static void *reserve_addresses(size_t size, int protection)
{
	void *range = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return range == MAP_FAILED ? NULL : range;
}

static void reserve(void)
{
	size_t size;

	uw_watch_forks();
	if (IS_INSTRUMENTED || uw_slab_is_watched())
		return;
	for (size = RANGE_MAX; size >= RANGE_MIN; size /= 2) {
		/* More by a granule, so that an aligned range is in it. */
		char *range = reserve_addresses(size + UW_SLAB_GRANULE, PROT_NONE);
		void *granules;

		if (!range)
			continue;
		granules = reserve_addresses(size / UW_SLAB_GRANULE * sizeof(*uw_slab_granules), PROT_READ | PROT_WRITE);
		if (!granules) {
			munmap(range, size + UW_SLAB_GRANULE);
			continue;
		}
		uw_slab_granules = granules;
		__atomic_store_n(&uw_slab_range, PTR_ALIGN(range, UW_SLAB_GRANULE), __ATOMIC_RELAXED);
		__atomic_store_n(&uw_slab_range_size, size, __ATOMIC_RELAXED);
		return;
	}
}

bool uw_slab_has_memory(void)
{
	pthread_once(&once, reserve);
	return uw_slab_range_size > 0;
}

/* The first granule of a free run; that of the range's end if there is none. */
static size_t find(size_t count)
{
	size_t end = uw_slab_range_size / UW_SLAB_GRANULE, at, free_here = 0;

	for (at = full; at < fresh; at++) {
		free_here = uw_slab_granules[at].owner ? 0 : free_here + 1;
		if (free_here == count)
			return at + 1 - count;
	}
	/* A run may begin below `fresh` and end above. */
	return count - free_here <= end - fresh ? fresh - free_here : end;
}

/* The size is in bytes. */
static void set_owner(size_t first, size_t size, struct kmem_cache *cache)
{
	size_t at;

	for (at = first; at < first + DIV_ROUND_UP(size, UW_SLAB_GRANULE); at++)
		__atomic_store_n(&uw_slab_granules[at].owner, cache, __ATOMIC_RELAXED);
	uw_slab_granules[first].run = cache ? size : 0;
}

void *uw_slab_memory_alloc(void *context, size_t size, size_t align)
{
	struct kmem_cache *cache = context;
	size_t count = DIV_ROUND_UP(size, UW_SLAB_GRANULE), first, slot;
	char *memory = NULL;

	if (align > UW_SLAB_GRANULE)
		return NULL;
	pthread_mutex_lock(&lock);
	first = find(count);
	if (first < uw_slab_range_size / UW_SLAB_GRANULE) {
		memory = uw_slab_range + first * UW_SLAB_GRANULE;
		if (mprotect(memory, count * UW_SLAB_GRANULE, PROT_READ | PROT_WRITE) == 0) {
			set_owner(first, size, cache);
			fresh = max(fresh, first + count);
			while (full < fresh && uw_slab_granules[full].owner)
				full++;
		} else {
			memory = NULL;
		}
	}
	pthread_mutex_unlock(&lock);
	if (memory && (cache->ctor || (cache->flags & UW_SLAB_CHECKS))) {
		for (slot = 0; slot + cache->stride <= size; slot += cache->stride)
			uw_slab_prepare(cache, memory + slot);
	}
	return memory;
}

void uw_slab_memory_free(void *context, void *memory, size_t size)
{
	size_t count = DIV_ROUND_UP(size, UW_SLAB_GRANULE);
	size_t first = (size_t)((char *)memory - uw_slab_range) / UW_SLAB_GRANULE;

	(void)context;
	/* A later access to the memory faults. If the system refuses that, the memory stays. */
	if (mmap(memory, count * UW_SLAB_GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		 -1, 0) == MAP_FAILED)
		madvise(memory, count * UW_SLAB_GRANULE, MADV_DONTNEED);
	pthread_mutex_lock(&lock);
	set_owner(first, size, NULL);
	full = min(full, first);
	pthread_mutex_unlock(&lock);
}

void uw_slab_each_slot(struct kmem_cache *cache, void (*visit)(struct kmem_cache *cache, char *slot))
{
	size_t end, at, slot;

	pthread_mutex_lock(&lock);
	end = fresh;
	pthread_mutex_unlock(&lock);
	/* The cache is in no other use, so its runs stay. */
	for (at = 0; at < end; at++) {
		if (__atomic_load_n(&uw_slab_granules[at].owner, __ATOMIC_RELAXED) != cache)
			continue;
		for (slot = 0; slot + cache->stride <= uw_slab_granules[at].run; slot += cache->stride)
			visit(cache, uw_slab_range + at * UW_SLAB_GRANULE + slot);
	}
}
