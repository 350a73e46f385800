/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory. */
#ifndef UWORK_KERNEL_LINUX_MM_H
#define UWORK_KERNEL_LINUX_MM_H

#include "../uw_kernel_slab.h"
#include <linux/align.h>
#include <linux/vmalloc.h>

#ifndef PAGE_SIZE
#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL
#endif
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define PAGE_ALIGN(addr) ALIGN(addr, PAGE_SIZE)
#define PAGE_ALIGNED(addr) IS_ALIGNED((unsigned long)(addr), PAGE_SIZE)
#define PAGE_ALIGN_DOWN(addr) ALIGN_DOWN(addr, PAGE_SIZE)
#define offset_in_page(ptr) ((unsigned long)(ptr) & ~PAGE_MASK)

/* The lowest order such that 2^order pages have `size` bytes. */
static inline int get_order(unsigned long size)
{
	int order = 0;

	while (PAGE_SIZE << order < size)
		order++;
	return order;
}

/* A page is identified by the address of its memory. */
struct page;

static inline void *page_address(const struct page *page)
{
	return (void *)(uintptr_t)page;
}

static inline struct page *virt_to_page(const void *addr)
{
	return (struct page *)((uintptr_t)addr & PAGE_MASK);
}

#ifdef __cplusplus
extern "C" {
#endif
/* The C library's. */
void *uw_kernel_aligned_alloc(size_t align, size_t size) __asm__("aligned_alloc");
#ifdef __cplusplus
}
#endif

static inline void copy_page(void *to, const void *from)
{
	memcpy(to, from, PAGE_SIZE);
}

static inline void clear_page(void *page)
{
	memset(page, 0, PAGE_SIZE);
}

/* 0 if there is no memory. */
static inline unsigned long __get_free_pages(gfp_t flags, unsigned int order)
{
	void *pages = uw_kernel_aligned_alloc(PAGE_SIZE, PAGE_SIZE << order);

	if (pages && (flags & __GFP_ZERO))
		memset(pages, 0, PAGE_SIZE << order);
	return (unsigned long)pages;
}

static inline void free_pages(unsigned long addr, unsigned int order)
{
	(void)order;
	uw_kernel_free((void *)addr);
}

static inline struct page *alloc_pages(gfp_t flags, unsigned int order)
{
	return (struct page *)__get_free_pages(flags, order);
}

#define __get_free_page(flags) __get_free_pages((flags), 0)
#define get_zeroed_page(flags) __get_free_pages((flags) | __GFP_ZERO, 0)
#define free_page(addr) free_pages((addr), 0)
#define alloc_page(flags) alloc_pages((flags), 0)
#define alloc_pages_node(node, flags, order) alloc_pages((flags), (order))
#define __free_pages(page, order) free_pages((unsigned long)page_address(page), (order))
#define __free_page(page) __free_pages((page), 0)
#define alloc_pages_exact(size, flags) ((void *)__get_free_pages((flags), (unsigned int)get_order(size)))
#define free_pages_exact(ptr, size) free_pages((unsigned long)(ptr), (unsigned int)get_order(size))

#define PFN_ALIGN(x) (((unsigned long)(x) + PAGE_SIZE - 1) & PAGE_MASK)
#define PFN_UP(x) (((x) + PAGE_SIZE - 1) >> PAGE_SHIFT)
#define PFN_DOWN(x) ((x) >> PAGE_SHIFT)
#define PFN_PHYS(x) ((phys_addr_t)(x) << PAGE_SHIFT)
#define PHYS_PFN(x) ((unsigned long)((x) >> PAGE_SHIFT))
#define page_to_virt(page) page_address(page)

#endif
