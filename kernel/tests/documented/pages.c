// SPDX-License-Identifier: MIT OR Apache-2.0
/* Pages, and what is in them. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/mm.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/slab.h>

static struct page *page;

static int __init pages_init(void)
{
	unsigned long addr;
	void *map;

	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!page)
		return -ENOMEM;
	map = kmap_local_page(page);
	memset(map, 0x5a, PAGE_SIZE);
	kunmap_local(map);
	addr = __get_free_pages(GFP_KERNEL, get_order(3 * PAGE_SIZE));
	if (!addr)
		return -ENOMEM;
	copy_page((void *)addr, page_address(page));
	if (*(u8 *)addr != 0x5a || offset_in_page(addr))
		return -EINVAL;
	free_pages(addr, get_order(3 * PAGE_SIZE));
	clear_page(page_address(page));
	if (PAGE_ALIGN(1) != PAGE_SIZE || !mem_is_zero(page_address(page), PAGE_SIZE))
		return -EINVAL;
	pr_info("passed\n");
	return 0;
}

static void __exit pages_exit(void)
{
	__free_page(page);
}

module_init(pages_init);
module_exit(pages_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("pages");
