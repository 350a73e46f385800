/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Allocation flags: only __GFP_ZERO has an effect here. */
#ifndef UWORK_KERNEL_LINUX_GFP_H
#define UWORK_KERNEL_LINUX_GFP_H

#include <linux/types.h>

#define __GFP_ZERO 0x100u
#define __GFP_NOWARN 0x2000u
#define __GFP_NOFAIL 0x8000u
#define __GFP_NORETRY 0x10000u
#define __GFP_RETRY_MAYFAIL 0x4000u
#define __GFP_ACCOUNT 0x400000u
#define __GFP_HIGHMEM 0x2u
#define __GFP_COMP 0x40000u
#define GFP_ATOMIC 0x20u
#define GFP_KERNEL 0xcc0u
#define GFP_KERNEL_ACCOUNT (GFP_KERNEL | __GFP_ACCOUNT)
#define GFP_NOWAIT 0x800u
#define GFP_NOIO 0xc00u
#define GFP_NOFS 0xc40u
#define GFP_USER GFP_KERNEL
#define GFP_HIGHUSER (GFP_USER | __GFP_HIGHMEM)
#define GFP_DMA 0x1u
#define GFP_DMA32 0x4u
#define __GFP_THISNODE 0x200000u
#define __GFP_NOMEMALLOC 0x80000u
#define __GFP_HIGH 0x20u
#define __GFP_DIRECT_RECLAIM 0x400u
#define __GFP_KSWAPD_RECLAIM 0x800u
#define __GFP_RECLAIM (__GFP_DIRECT_RECLAIM | __GFP_KSWAPD_RECLAIM)

static inline void might_alloc(gfp_t flags)
{
	(void)flags;
}

static inline bool gfpflags_allow_blocking(gfp_t flags)
{
	return (flags & __GFP_DIRECT_RECLAIM) != 0;
}

#endif
