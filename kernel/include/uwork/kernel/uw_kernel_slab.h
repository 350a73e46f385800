/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory allocation, separate from linux/slab.h, which includes many other headers. */
#ifndef UWORK_KERNEL_UW_KERNEL_SLAB_H
#define UWORK_KERNEL_UW_KERNEL_SLAB_H

#include <linux/cleanup.h>

#include "uw_kernel.h"
#include "uw_kernel_string.h"
#include <linux/gfp.h>
#include <linux/overflow.h>

#ifdef __cplusplus
extern "C" {
#endif

/* With UWORK_DEBUG=objects, ends the process if a work item in the memory is queued. */
void uw_kernel_free(const void *ptr);

struct kmem_cache;
struct kmem_cache *uw_kernel_cache_create(const char *name, size_t size, size_t align, slab_flags_t flags,
					  void (*ctor)(void *));
void uw_kernel_cache_destroy(struct kmem_cache *cache);
void *uw_kernel_cache_alloc(struct kmem_cache *cache, gfp_t flags);
void uw_kernel_cache_free(struct kmem_cache *cache, void *object);
int uw_kernel_cache_shrink(struct kmem_cache *cache);
size_t uw_kernel_cache_size(const struct kmem_cache *cache);
void *uw_kernel_kmalloc(size_t size, gfp_t flags);
void *uw_kernel_krealloc(const void *ptr, size_t size, gfp_t flags);
void *uw_kernel_vmalloc(size_t size, gfp_t flags);
size_t uw_kernel_size(const void *ptr);

/* The result of an allocation of 0 bytes. It can be freed, and must not be accessed. */
#define ZERO_SIZE_PTR ((void *)16)
#define ZERO_OR_NULL_PTR(ptr) ((uintptr_t)(ptr) <= (uintptr_t)ZERO_SIZE_PTR)

/*
 * Memory of a per-CPU cache, by its size; above 8 KB that of malloc(). A power of two is aligned to
 * its size. Only kfree() and its relatives may free it: it is not malloc()'s. They also take memory
 * of malloc().
 */
static inline void *kmalloc(size_t size, gfp_t flags)
{
	return uw_kernel_kmalloc(size, flags);
}

static inline void *kzalloc(size_t size, gfp_t flags)
{
	return kmalloc(size, flags | __GFP_ZERO);
}

static inline void *kmalloc_array(size_t n, size_t size, gfp_t flags)
{
	size_t bytes;

	return check_mul_overflow(n, size, &bytes) ? NULL : kmalloc(bytes, flags);
}

static inline void *kcalloc(size_t n, size_t size, gfp_t flags)
{
	return kmalloc_array(n, size, flags | __GFP_ZERO);
}

/* Bytes that are added are 0 only if all allocations of the block had __GFP_ZERO. */
static inline void *krealloc(const void *ptr, size_t size, gfp_t flags)
{
	return uw_kernel_krealloc(ptr, size, flags);
}

static inline void *krealloc_array(void *ptr, size_t n, size_t size, gfp_t flags)
{
	size_t bytes;

	return check_mul_overflow(n, size, &bytes) ? NULL : krealloc(ptr, bytes, flags);
}

static inline void kfree(const void *ptr)
{
	uw_kernel_free(ptr);
}

static inline void *kvmalloc(size_t size, gfp_t flags)
{
	return kmalloc(size, flags);
}

static inline void *kvzalloc(size_t size, gfp_t flags)
{
	return kzalloc(size, flags);
}

static inline void *kvmalloc_array(size_t n, size_t size, gfp_t flags)
{
	return kmalloc_array(n, size, flags);
}

static inline void *kvcalloc(size_t n, size_t size, gfp_t flags)
{
	return kcalloc(n, size, flags);
}

static inline void kvfree(const void *ptr)
{
	kfree(ptr);
}

/* The compiler must not leave out the stores because the memory is freed. */
static inline void kvfree_sensitive(const void *ptr, size_t size)
{
	if (ptr) {
		memset((void *)(uintptr_t)ptr, 0, size);
		__asm__ __volatile__("" : : "r"(ptr) : "memory");
	}
	kfree(ptr);
}

static inline size_t ksize(const void *ptr)
{
	return uw_kernel_size(ptr);
}

static inline void kfree_sensitive(const void *ptr)
{
	kvfree_sensitive(ptr, ksize(ptr));
}

#define kmalloc_node(size, flags, node) ((void)(node), kmalloc((size), (flags)))
#define kzalloc_node(size, flags, node) ((void)(node), kzalloc((size), (flags)))
#define kcalloc_node(n, size, flags, node) ((void)(node), kcalloc((n), (size), (flags)))
#define kmalloc_array_node(n, size, flags, node) ((void)(node), kmalloc_array((n), (size), (flags)))
#define kvmalloc_node(size, flags, node) ((void)(node), kvmalloc((size), (flags)))
#define kvzalloc_node(size, flags, node) ((void)(node), kvzalloc((size), (flags)))
#define kvmalloc_array_node(n, size, flags, node) ((void)(node), kvmalloc_array((n), (size), (flags)))
#define kvcalloc_node(n, size, flags, node) ((void)(node), kvcalloc((n), (size), (flags)))

static inline void *kvrealloc(const void *ptr, size_t size, gfp_t flags)
{
	return krealloc(ptr, size, flags);
}

/* Allocates by type or variable. The flags may be omitted. */
#define UW_OBJ(what, ...) ((__typeof__(what) *)kmalloc(sizeof(what), GFP_KERNEL))
#define UW_ZERO_OBJ(what, ...) ((__typeof__(what) *)kzalloc(sizeof(what), GFP_KERNEL))
#define UW_OBJS(what, n, ...) ((__typeof__(what) *)kmalloc_array((n), sizeof(what), GFP_KERNEL))
#define UW_ZERO_OBJS(what, n, ...) ((__typeof__(what) *)kcalloc((n), sizeof(what), GFP_KERNEL))
#define UW_FLEX(what, member, n, ...) \
	((__typeof__(what) *)kmalloc(struct_size((__typeof__(what) *)NULL, member, (n)), GFP_KERNEL))
#define UW_ZERO_FLEX(what, member, n, ...) \
	((__typeof__(what) *)kzalloc(struct_size((__typeof__(what) *)NULL, member, (n)), GFP_KERNEL))
#define kmalloc_obj(...) UW_OBJ(__VA_ARGS__, GFP_KERNEL)
#define kzalloc_obj(...) UW_ZERO_OBJ(__VA_ARGS__, GFP_KERNEL)
#define kmalloc_objs(...) UW_OBJS(__VA_ARGS__, GFP_KERNEL)
#define kzalloc_objs(...) UW_ZERO_OBJS(__VA_ARGS__, GFP_KERNEL)
#define kmalloc_flex(...) UW_FLEX(__VA_ARGS__, GFP_KERNEL)
#define kzalloc_flex(...) UW_ZERO_FLEX(__VA_ARGS__, GFP_KERNEL)
#define kvmalloc_obj(...) kmalloc_obj(__VA_ARGS__)
#define kvzalloc_obj(...) kzalloc_obj(__VA_ARGS__)
#define kvmalloc_objs(...) kmalloc_objs(__VA_ARGS__)
#define kvzalloc_objs(...) kzalloc_objs(__VA_ARGS__)

#define SLAB_HWCACHE_ALIGN 0x2000u
#define SLAB_RECLAIM_ACCOUNT 0x20000u
#define SLAB_MEM_SPREAD 0u
#define SLAB_POISON 0x800u
#define SLAB_RED_ZONE 0x400u
#define SLAB_STORE_USER 0x10000u
#define SLAB_NO_MERGE 0x1000000u
#define SLAB_TEMPORARY SLAB_RECLAIM_ACCOUNT
#define KMALLOC_MAX_SIZE ((size_t)1 << 22)
#define ARCH_KMALLOC_MINALIGN 16
#define SLAB_PANIC 0x40000u
#define SLAB_ACCOUNT 0x4000000u
#define SLAB_TYPESAFE_BY_RCU 0x80000u

/* NULL, after a message, if an argument is invalid or there is no memory. */
static inline struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, unsigned int align,
						   slab_flags_t flags, void (*ctor)(void *))
{
	return uw_kernel_cache_create(name, size, align, flags, ctor);
}

/* User memory is the program's own memory, so that nothing restricts what is copied there. */
static inline struct kmem_cache *kmem_cache_create_usercopy(const char *name, unsigned int size, unsigned int align,
							    slab_flags_t flags, unsigned int useroffset,
							    unsigned int usersize, void (*ctor)(void *))
{
	(void)useroffset;
	(void)usersize;
	return uw_kernel_cache_create(name, size, align, flags, ctor);
}

/* The newer form: kmem_cache_create(name, size, &args, flags). args may be NULL. */
struct kmem_cache_args {
	unsigned int align;
	unsigned int useroffset;
	unsigned int usersize;
	unsigned int freeptr_offset;
	bool use_freeptr_offset;
	void (*ctor)(void *);
	unsigned int sheaf_capacity;
};

static inline struct kmem_cache *uw_kernel_cache_create_args(const char *name, unsigned int size,
							     const struct kmem_cache_args *args, slab_flags_t flags)
{
	return uw_kernel_cache_create(name, size, args ? args->align : 0, flags, args ? args->ctor : NULL);
}

#ifndef __cplusplus
static inline struct kmem_cache *uw_kernel_cache_create_plain(const char *name, unsigned int size, void *no_args,
							      slab_flags_t flags)
{
	(void)no_args;
	return uw_kernel_cache_create(name, size, 0, flags, NULL);
}

#define kmem_cache_create(name, size, args, ...) \
	_Generic((args), struct kmem_cache_args *: uw_kernel_cache_create_args, \
		 const struct kmem_cache_args *: uw_kernel_cache_create_args, void *: uw_kernel_cache_create_plain, \
		 default: (kmem_cache_create))((name), (size), (args), __VA_ARGS__)
#endif

/* With objects that are still allocated, reports them and keeps the cache. */
static inline void kmem_cache_destroy(struct kmem_cache *cache)
{
	uw_kernel_cache_destroy(cache);
}

static inline void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags)
{
	return uw_kernel_cache_alloc(cache, flags);
}

static inline void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t flags)
{
	return uw_kernel_cache_alloc(cache, flags | __GFP_ZERO);
}

static inline void *kmem_cache_alloc_node(struct kmem_cache *cache, gfp_t flags, int node)
{
	(void)node;
	return kmem_cache_alloc(cache, flags);
}

static inline void kmem_cache_free(struct kmem_cache *cache, void *ptr)
{
	uw_kernel_cache_free(cache, ptr);
}

static inline void kmem_cache_free_bulk(struct kmem_cache *cache, size_t count, void **objects)
{
	while (count > 0)
		kmem_cache_free(cache, objects[--count]);
}

/* Returns `count`, or 0 if there is no memory for all of them. */
static inline int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count, void **objects)
{
	size_t index;

	for (index = 0; index < count; index++) {
		objects[index] = kmem_cache_alloc(cache, flags);
		if (!objects[index]) {
			kmem_cache_free_bulk(cache, index, objects);
			return 0;
		}
	}
	return (int)count;
}

/* Returns unused memory to the system, from the magazines of all CPUs as well. */
static inline int kmem_cache_shrink(struct kmem_cache *cache)
{
	return uw_kernel_cache_shrink(cache);
}

static inline unsigned int kmem_cache_size(struct kmem_cache *cache)
{
	return (unsigned int)uw_kernel_cache_size(cache);
}

#define KMEM_CACHE(type, flags) \
	uw_kernel_cache_create(#type, sizeof(struct type), __alignof__(struct type), (flags), NULL)

#define KMEM_CACHE_USERCOPY(type, flags, field) KMEM_CACHE(type, flags)

#ifdef __cplusplus
}

static inline struct kmem_cache *kmem_cache_create(const char *name, unsigned int size,
						   const struct kmem_cache_args *args, slab_flags_t flags)
{
	return uw_kernel_cache_create_args(name, size, args, flags);
}
#endif

#ifndef __cplusplus
DEFINE_FREE(kfree, void *, if (!IS_ERR_OR_NULL(_T)) kfree(_T))
DEFINE_FREE(kvfree, void *, if (!IS_ERR_OR_NULL(_T)) kvfree(_T))
#endif

#endif
