/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Allocation of large memory. */
#ifndef UWORK_KERNEL_LINUX_VMALLOC_H
#define UWORK_KERNEL_LINUX_VMALLOC_H

#include "../uw_kernel_slab.h"

static inline void *vmalloc(unsigned long size)
{
	return kmalloc(size, GFP_KERNEL);
}

static inline void *vzalloc(unsigned long size)
{
	return kzalloc(size, GFP_KERNEL);
}

static inline void vfree(const void *ptr)
{
	kfree(ptr);
}

static inline void *vmalloc_array(size_t n, size_t size)
{
	return kmalloc_array(n, size, GFP_KERNEL);
}

static inline void *vcalloc(size_t n, size_t size)
{
	return kcalloc(n, size, GFP_KERNEL);
}

static inline void *__vmalloc(unsigned long size, gfp_t flags)
{
	return kmalloc(size, flags);
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

#define vmalloc_user(size) vzalloc(size)
#define vmalloc_32(size) vmalloc(size)
/* There is one kind of memory, so kvfree() frees each. */
#define is_vmalloc_addr(ptr) ((ptr) != NULL)

#endif
