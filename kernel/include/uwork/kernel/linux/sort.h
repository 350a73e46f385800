/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sorting. */
#ifndef UWORK_KERNEL_LINUX_SORT_H
#define UWORK_KERNEL_LINUX_SORT_H

#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif
/* The C library's, whose header declares names that modules use. */
void uw_kernel_qsort(void *base, size_t num, size_t size, cmp_func_t compare) __asm__("qsort");
void uw_kernel_sort_r(void *base, size_t num, size_t size, cmp_r_func_t compare, const void *priv);
#ifdef __cplusplus
}
#endif

/* Elements are moved as bytes, so `swap_elements` is not called. */
static inline void sort(void *base, size_t num, size_t size, cmp_func_t compare, swap_func_t swap_elements)
{
	(void)swap_elements;
	uw_kernel_qsort(base, num, size, compare);
}

static inline void sort_r(void *base, size_t num, size_t size, cmp_r_func_t compare, swap_r_func_t swap_elements,
			  const void *priv)
{
	(void)swap_elements;
	uw_kernel_sort_r(base, num, size, compare, priv);
}

#define sort_nonatomic(base, num, size, compare, swap_elements) sort((base), (num), (size), (compare), (swap_elements))

#endif
