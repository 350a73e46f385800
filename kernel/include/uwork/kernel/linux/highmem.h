/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Pages of a process are always mapped. */
#ifndef UWORK_KERNEL_LINUX_HIGHMEM_H
#define UWORK_KERNEL_LINUX_HIGHMEM_H

#include <linux/mm.h>

static inline void *kmap(struct page *page)
{
	return page_address(page);
}

static inline void kunmap(const struct page *page)
{
	(void)page;
}

static inline void *kmap_local_page(const struct page *page)
{
	return page_address(page);
}

#define kunmap_local(addr) ((void)(addr))
#define kmap_atomic(page) kmap_local_page(page)
#define kunmap_atomic(addr) kunmap_local(addr)

static inline void clear_highpage(struct page *page)
{
	memset(page_address(page), 0, PAGE_SIZE);
}

static inline void copy_highpage(struct page *to, const struct page *from)
{
	memcpy(page_address(to), page_address(from), PAGE_SIZE);
}

static inline void memcpy_from_page(char *to, const struct page *page, size_t offset, size_t size)
{
	memcpy(to, (const char *)page_address(page) + offset, size);
}

static inline void memcpy_to_page(struct page *page, size_t offset, const char *from, size_t size)
{
	memcpy((char *)page_address(page) + offset, from, size);
}

static inline void memzero_page(struct page *page, size_t offset, size_t size)
{
	memset((char *)page_address(page) + offset, 0, size);
}

#endif
