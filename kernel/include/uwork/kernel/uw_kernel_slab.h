/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory allocation, separate from linux/slab.h, which includes many other headers. */
#ifndef UWORK_KERNEL_UW_KERNEL_SLAB_H
#define UWORK_KERNEL_UW_KERNEL_SLAB_H

#include <linux/cleanup.h>
#include <stdlib.h>

#include "uw_kernel.h"
#include <linux/gfp.h>
#include <linux/overflow.h>

#ifdef __cplusplus
extern "C" {
#endif

/* With UWORK_DEBUG=objects, ends the process if a work item in the memory is queued. */
void uw_kernel_free(const void *ptr);

struct kmem_cache;
struct kmem_cache *uw_kernel_cache_create(const char *name, size_t size, size_t align, void (*ctor)(void *));
void uw_kernel_cache_destroy(struct kmem_cache *cache);
void *uw_kernel_cache_alloc(struct kmem_cache *cache, bool zero);
size_t uw_kernel_size(const void *ptr);

static inline void *kmalloc(size_t size, gfp_t flags)
{
	return flags & __GFP_ZERO ? calloc(1, size) : malloc(size);
}

static inline void *kzalloc(size_t size, gfp_t flags)
{
	(void)flags;
	return calloc(1, size);
}

static inline void *kmalloc_array(size_t n, size_t size, gfp_t flags)
{
	size_t bytes;

	return check_mul_overflow(n, size, &bytes) ? NULL : kmalloc(bytes, flags);
}

static inline void *kcalloc(size_t n, size_t size, gfp_t flags)
{
	(void)flags;
	return calloc(n, size);
}

static inline void *krealloc(const void *ptr, size_t size, gfp_t flags)
{
	(void)flags;
	return realloc((void *)(uintptr_t)ptr, size);
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

#define kmalloc_node(size, flags, node) kmalloc((size), (flags))
#define kzalloc_node(size, flags, node) kzalloc((size), (flags))
#define kcalloc_node(n, size, flags, node) kcalloc((n), (size), (flags))
#define kvmalloc(size, flags) kmalloc((size), (flags))
#define kvzalloc(size, flags) kzalloc((size), (flags))
#define kvmalloc_array(n, size, flags) kmalloc_array((n), (size), (flags))
#define kvcalloc(n, size, flags) kcalloc((n), (size), (flags))
#define kmalloc_array_node(n, size, flags, node) kmalloc_array((n), (size), (flags))
#define kvmalloc_node(size, flags, node) kvmalloc((size), (flags))
#define kvzalloc_node(size, flags, node) kvzalloc((size), (flags))
#define kvmalloc_array_node(n, size, flags, node) kvmalloc_array((n), (size), (flags))
#define kvcalloc_node(n, size, flags, node) kvcalloc((n), (size), (flags))
#define kvrealloc(ptr, size, flags) krealloc((ptr), (size), (flags))
#define kmem_cache_alloc_node(cache, flags, node) kmem_cache_alloc((cache), (flags))
#define kmem_cache_shrink(cache) ((void)(cache), 0)
#define kvfree(ptr) kfree(ptr)
#define kfree_sensitive(ptr) kfree(ptr)
#define kvfree_sensitive(ptr, size) kfree(ptr)
#define ksize(ptr) uw_kernel_size(ptr)

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
#define KMALLOC_MAX_SIZE ((size_t)1 << 22)
#define ARCH_KMALLOC_MINALIGN 16
#define ZERO_OR_NULL_PTR(ptr) ((ptr) == NULL)
#define SLAB_PANIC 0x40000u
#define SLAB_ACCOUNT 0x4000000u
#define kmem_cache_create(name, size, align, flags, ctor) uw_kernel_cache_create((name), (size), (align), (ctor))
#define KMEM_CACHE(type, flags) \
	uw_kernel_cache_create(#type, sizeof(struct type), __alignof__(struct type), NULL)
#define kmem_cache_destroy(cache) uw_kernel_cache_destroy(cache)
#define kmem_cache_alloc(cache, flags) uw_kernel_cache_alloc((cache), ((flags) & __GFP_ZERO) != 0)
#define kmem_cache_zalloc(cache, flags) uw_kernel_cache_alloc((cache), true)
#define kmem_cache_free(cache, ptr) ((void)(cache), uw_kernel_free(ptr))

#ifdef __cplusplus
}
#endif

#ifndef __cplusplus
DEFINE_FREE(kfree, void *, if (!IS_ERR_OR_NULL(_T)) kfree(_T))
DEFINE_FREE(kvfree, void *, if (!IS_ERR_OR_NULL(_T)) kvfree(_T))
#endif

#endif
