/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef OWN_ATOMIC_H
#define OWN_ATOMIC_H

#include <stdatomic.h>

#include <linux/types.h>

#define ATOMIC_INIT(i) { (i) }

static inline int atomic_read(atomic_t *v)
{
	return atomic_load(&v->value);
}

static inline void atomic_inc(atomic_t *v)
{
	atomic_fetch_add(&v->value, 1);
}

#endif
