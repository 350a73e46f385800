/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Pseudo-random numbers: of the system, or repeatable ones from a seed. The values are not those of the kernel. */
#ifndef UWORK_KERNEL_LINUX_PRANDOM_H
#define UWORK_KERNEL_LINUX_PRANDOM_H

#include <linux/random.h>

#define prandom_bytes(buf, count) get_random_bytes((buf), (count))
#define prandom_u32() get_random_u32()
#define prandom_u32_max(limit) get_random_u32_below(limit)

struct rnd_state {
	u64 uw_state;
};

static inline void prandom_seed_state(struct rnd_state *state, u64 seed)
{
	state->uw_state = seed;
}

/* A counter with a large odd step; its value is mixed. */
static inline u32 prandom_u32_state(struct rnd_state *state)
{
	u64 value = state->uw_state += 0x9e3779b97f4a7c15ull;

	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
	value = (value ^ value >> 27) * 0x94d049bb133111ebull;
	return (u32)(value >> 32);
}

static inline void prandom_bytes_state(struct rnd_state *state, void *buf, size_t count)
{
	u8 *at = (u8 *)buf;

	while (count-- > 0)
		*at++ = (u8)prandom_u32_state(state);
}

/* Gives the state of each CPU another seed. Needs linux/percpu.h. */
#define prandom_seed_full_state(states) \
	do { \
		unsigned int uw_cpu; \
		for_each_possible_cpu(uw_cpu) \
			prandom_seed_state(per_cpu_ptr((states), uw_cpu), get_random_u64()); \
	} while (0)

#endif
