/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Allocation of large memory. */
#ifndef UWORK_KERNEL_LINUX_VMALLOC_H
#define UWORK_KERNEL_LINUX_VMALLOC_H

#include "../uw_kernel_slab.h"

#define vmalloc(size) kmalloc((size), GFP_KERNEL)
#define vzalloc(size) kzalloc((size), GFP_KERNEL)
#define vmalloc_array(n, size) kmalloc_array((n), (size), GFP_KERNEL)
#define vcalloc(n, size) kcalloc((n), (size), GFP_KERNEL)
#define vmalloc_node(size, node) vmalloc(size)
#define vzalloc_node(size, node) vzalloc(size)
#define __vmalloc(size, flags) kmalloc((size), (flags))
#define vfree(ptr) kfree(ptr)

#endif
