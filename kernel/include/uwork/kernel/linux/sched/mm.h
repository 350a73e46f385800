/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See sched.h. */
#ifndef UWORK_KERNEL_LINUX_SCHED_MM_H
#define UWORK_KERNEL_LINUX_SCHED_MM_H

#include <linux/sched.h>

/*
 * The library's allocator never writes pages back to reclaim memory, so these scopes have nothing
 * to forbid.
 */
#define UW_MEMALLOC_SCOPE(kind) \
	static inline unsigned int memalloc_##kind##_save(void) \
	{ \
		return 0; \
	} \
	static inline void memalloc_##kind##_restore(unsigned int flags) \
	{ \
		(void)flags; \
	}
UW_MEMALLOC_SCOPE(nofs)
UW_MEMALLOC_SCOPE(noio)
UW_MEMALLOC_SCOPE(noreclaim)

#endif
