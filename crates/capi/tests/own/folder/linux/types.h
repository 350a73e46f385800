/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program's own headers, as tools that share code with the kernel have them. */
#ifndef OWN_TYPES_H
#define OWN_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Not what these are elsewhere: a program may choose. */
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
