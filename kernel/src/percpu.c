/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Per-CPU data. One range of addresses has a unit for each CPU, and all units have the same layout.
 * An allocation is made in the first unit. The copy of CPU n is at the same offset in unit n, and
 * so is every address within the allocation.
 *
 * The blocks of a unit have powers of two as sizes. They are split and joined as in a buddy
 * allocator. Memory is requested from the system only up to the end of the highest block.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <linux/kernel.h>
#include <linux/percpu.h>
#include "fork.h"

#define GRANULE_SHIFT 4
#define GRANULES (UW_KERNEL_PERCPU_UNIT >> GRANULE_SHIFT)
#define TOP_ORDER 21
#define MOST_ALIGN 4096ul
#define COMMIT 65536ul

_Static_assert(GRANULES == 1ul << TOP_ORDER, "the unit is the largest block");

/* The state of a granule at which a block begins. */
struct block {
	uint32_t next, prev; /* the list of free blocks of that size, by index + 1; 0 is the end */
	uint8_t state;
};

enum { NO_BLOCK = 0, IS_FREE = 0x40, IS_USED = 0x80, ORDER = 0x3f };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guard of all of the following: the lock. */
static char *units;
static struct block *blocks;
static size_t committed;
static uint32_t free_blocks[TOP_ORDER + 1];

void uw_percpu_fork(enum uw_fork at)
{
	uw_fork_mutex(&lock, at);
}

static void push(uint32_t index, unsigned int order)
{
	struct block *block = &blocks[index];

	block->state = (uint8_t)(IS_FREE | order);
	block->prev = 0;
	block->next = free_blocks[order];
	if (block->next)
		blocks[block->next - 1].prev = index + 1;
	free_blocks[order] = index + 1;
}

static void take(uint32_t index, unsigned int order)
{
	struct block *block = &blocks[index];

	if (block->next)
		blocks[block->next - 1].prev = block->prev;
	if (block->prev)
		blocks[block->prev - 1].next = block->next;
	else
		free_blocks[order] = block->next;
	block->state = NO_BLOCK;
}

/* Reserves addresses only; commit() requests the memory. */
static bool reserve(void)
{
	size_t whole = UW_KERNEL_PERCPU_UNIT * uw_kernel_nr_cpus();
	size_t table = GRANULES * sizeof(*blocks);
	void *range, *list;

	if (units)
		return true;
	range = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED)
		return false;
	list = mmap(NULL, table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (list == MAP_FAILED) {
		munmap(range, whole);
		return false;
	}
	blocks = list;
	units = range;
	push(0, TOP_ORDER);
	return true;
}

/* Requests memory in all units up to this offset. */
static bool commit(size_t end)
{
	unsigned int cpu;

	if (end <= committed)
		return true;
	end = (end + COMMIT - 1) / COMMIT * COMMIT;
	for (cpu = 0; cpu < uw_kernel_nr_cpus(); cpu++) {
		char *from = units + cpu * UW_KERNEL_PERCPU_UNIT + committed;

		if (mprotect(from, end - committed, PROT_READ | PROT_WRITE) != 0)
			return false;
	}
	committed = end;
	return true;
}

static void give_back(uint32_t index, unsigned int order)
{
	blocks[index].state = NO_BLOCK;
	for (; order < TOP_ORDER; order++) {
		uint32_t other = index ^ (1u << order);

		if (blocks[other].state != (IS_FREE | order))
			break;
		take(other, order);
		index &= ~(1u << order);
	}
	push(index, order);
}

static char *allocate(size_t size, unsigned int order)
{
	unsigned int found = order;
	uint32_t index;

	if (!reserve())
		return NULL;
	while (found <= TOP_ORDER && !free_blocks[found])
		found++;
	if (found > TOP_ORDER)
		return NULL;
	index = free_blocks[found] - 1;
	take(index, found);
	/* Uses the lower half first, so that the memory that is in use stays at the front. */
	while (found > order) {
		found--;
		push(index + (1u << found), found);
	}
	if (!commit(((size_t)index << GRANULE_SHIFT) + size)) {
		give_back(index, order);
		return NULL;
	}
	blocks[index].state = (uint8_t)(IS_USED | order);
	return units + ((size_t)index << GRANULE_SHIFT);
}

/* The order of the smallest block of that size. A block is aligned to its size. */
static unsigned int order_of(size_t size)
{
	unsigned int order = 0;

	while ((1ul << (order + GRANULE_SHIFT)) < size)
		order++;
	return order;
}

/*
 * Called before the lock is taken. The first question for the CPUs reads the machine, by functions of
 * the library whose locks a fork takes before the lock of this file: with that lock held, each would
 * wait for the other.
 */
static void know_cpus(void)
{
	(void)uw_kernel_nr_cpus();
}

void *uw_kernel_alloc_percpu(size_t size, size_t align)
{
	unsigned int cpu;
	char *memory;

	if (size == 0 || size > UW_KERNEL_PERCPU_UNIT || align == 0 || align > MOST_ALIGN || (align & (align - 1)) != 0) {
		uw_kernel_printk(KERN_WARNING "uwork: alloc_percpu: %zu bytes, aligned to %zu: the size is 1 to %lu, "
				 "the alignment a power of two up to %lu\n", size, align, UW_KERNEL_PERCPU_UNIT, MOST_ALIGN);
		return NULL;
	}
	know_cpus();
	pthread_mutex_lock(&lock);
	memory = allocate(size, order_of(size > align ? size : align));
	pthread_mutex_unlock(&lock);
	if (!memory) {
		uw_kernel_printk(KERN_WARNING "uwork: alloc_percpu: no room for %zu bytes; the limit for each CPU is %lu "
				 "in total\n", size, UW_KERNEL_PERCPU_UNIT);
		return NULL;
	}
	for (cpu = 0; cpu < uw_kernel_nr_cpus(); cpu++)
		memset(memory + cpu * UW_KERNEL_PERCPU_UNIT, 0, size);
	return memory;
}

void uw_kernel_free_percpu(void *ptr)
{
	uint8_t state = NO_BLOCK;
	uint32_t index = 0;
	unsigned int cpu;
	size_t at;

	if (!ptr)
		return;
	pthread_mutex_lock(&lock);
	at = (size_t)((char *)ptr - units);
	if (units && at < UW_KERNEL_PERCPU_UNIT && at % (1ul << GRANULE_SHIFT) == 0) {
		index = (uint32_t)(at >> GRANULE_SHIFT);
		state = blocks[index].state;
	}
	/* Neither used nor free until it is checked: a second call finds no block, an allocation does not take it. */
	if (state & IS_USED)
		blocks[index].state = NO_BLOCK;
	pthread_mutex_unlock(&lock);
	if (!(state & IS_USED))
		uw_kernel_bug("free_percpu: this was not allocated by alloc_percpu, or was freed before", __FILE__, __LINE__);
	for (cpu = 0; cpu < uw_kernel_nr_cpus(); cpu++)
		uw_debug_check_freed((char *)ptr + cpu * UW_KERNEL_PERCPU_UNIT, 1ul << ((state & ORDER) + GRANULE_SHIFT));
	pthread_mutex_lock(&lock);
	give_back(index, state & ORDER);
	pthread_mutex_unlock(&lock);
}

intptr_t uw_kernel_percpu_section(const char *start, const char *stop, intptr_t *place)
{
	/*
	 * Keeps the alignment of each variable: the copy starts at the same offset from a
	 * MOST_ALIGN boundary.
	 */
	size_t before = (uintptr_t)start % MOST_ALIGN, size = (size_t)(stop - start);
	unsigned int cpu;
	char *memory;

	know_cpus();
	pthread_mutex_lock(&lock);
	if (!*place) {
		memory = allocate(before + size, order_of(before + size > MOST_ALIGN ? before + size : MOST_ALIGN));
		if (!memory) {
			pthread_mutex_unlock(&lock);
			uw_kernel_bug("no memory for per-CPU variables", __FILE__, __LINE__);
		}
		for (cpu = 0; cpu < uw_kernel_nr_cpus(); cpu++)
			memcpy(memory + before + cpu * UW_KERNEL_PERCPU_UNIT, start, size);
		__atomic_store_n(place, (intptr_t)(memory + before) - (intptr_t)start, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return *place;
}
