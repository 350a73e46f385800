/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program's own headers, as in tools that share code with the kernel. */
#ifndef OWN_TYPES_H
#define OWN_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Deliberately different from the usual definitions: the program may choose them. */
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
typedef unsigned long gfp_t;
typedef struct {
	_Atomic int value;
} atomic_t;

struct list_head {
	struct list_head *next, *prev;
};

struct hlist_node {
	struct hlist_node *next, **pprev;
};

#endif
