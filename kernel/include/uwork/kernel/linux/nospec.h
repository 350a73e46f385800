/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Array indices under speculation. */
#ifndef UWORK_KERNEL_LINUX_NOSPEC_H
#define UWORK_KERNEL_LINUX_NOSPEC_H

#include <linux/compiler.h>

/* 0 for an index that is too large. */
#define array_index_nospec(index, size) \
	__extension__({ \
		__typeof__(index) uw_index = (index); \
		uw_index < (size) ? uw_index : (__typeof__(index))0; \
	})

#endif
