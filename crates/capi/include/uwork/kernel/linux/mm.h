/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory. */
#ifndef UWORK_KERNEL_LINUX_MM_H
#define UWORK_KERNEL_LINUX_MM_H

#include "../uw_kernel_slab.h"
#include <linux/vmalloc.h>

#ifndef PAGE_SIZE
#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL
#endif
#define __get_free_page(gfp) ((unsigned long)aligned_alloc(PAGE_SIZE, PAGE_SIZE))
#define get_zeroed_page(gfp) ((unsigned long)memset(aligned_alloc(PAGE_SIZE, PAGE_SIZE), 0, PAGE_SIZE))
#define free_page(addr) free((void *)(addr))

#endif
