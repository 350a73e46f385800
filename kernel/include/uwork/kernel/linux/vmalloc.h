/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Allocation of large memory. */
#ifndef UWORK_KERNEL_LINUX_VMALLOC_H
#define UWORK_KERNEL_LINUX_VMALLOC_H

#include "../uw_kernel_slab.h"

static inline void *vmalloc(unsigned long size)
{
	return uw_kernel_vmalloc(size, GFP_KERNEL);
}

static inline void *vzalloc(unsigned long size)
{
	return uw_kernel_vmalloc(size, GFP_KERNEL | __GFP_ZERO);
}

static inline void vfree(const void *ptr)
{
	kfree(ptr);
}

static inline void *vmalloc_array(size_t n, size_t size)
{
	size_t bytes;

	return check_mul_overflow(n, size, &bytes) ? NULL : vmalloc(bytes);
}

static inline void *vcalloc(size_t n, size_t size)
{
	size_t bytes;

	return check_mul_overflow(n, size, &bytes) ? NULL : vzalloc(bytes);
}

static inline void *__vmalloc(unsigned long size, gfp_t flags)
{
	return uw_kernel_vmalloc(size, flags);
}

static inline void *vmalloc_node(unsigned long size, int node)
{
	(void)node;
	return vmalloc(size);
}

static inline void *vzalloc_node(unsigned long size, int node)
{
	(void)node;
	return vzalloc(size);
}

static inline void *vmalloc_user(unsigned long size)
{
	return vzalloc(size);
}

static inline void *vmalloc_32(unsigned long size)
{
	return vmalloc(size);
}

/* kvfree() frees each kind of memory, so programs need not know. */
#define is_vmalloc_addr(ptr) ((ptr) != NULL)

#endif
