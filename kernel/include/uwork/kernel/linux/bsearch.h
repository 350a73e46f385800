/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Binary search. */
#ifndef UWORK_KERNEL_LINUX_BSEARCH_H
#define UWORK_KERNEL_LINUX_BSEARCH_H

#include <linux/types.h>

/* The element of the sorted array for which `compare` returns 0; NULL if there is none. */
static inline void *uw_kernel_bsearch(const void *key, const void *base, size_t num, size_t size, cmp_func_t compare)
{
	const char *first = (const char *)base;

	while (num > 0) {
		const char *middle = first + num / 2 * size;
		int order = compare(key, middle);

		if (order == 0)
			return (void *)(uintptr_t)middle;
		if (order > 0) {
			first = middle + size;
			num--;
		}
		num /= 2;
	}
	return NULL;
}

/* The C library declares a function of this name, so this is a macro. */
#define bsearch(key, base, num, size, compare) uw_kernel_bsearch((key), (base), (num), (size), (compare))

#endif
