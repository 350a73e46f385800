/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Data of each CPU: equal copies at equal distances. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <linux/percpu.h>

#define LINE 64

/* The copies of one section, which has itself nothing but the initial values. */
struct section {
	struct section *next;
	const char *start;
	size_t stride;
	char *copies;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct section *sections;

static size_t rounded(size_t size)
{
	return (size + LINE - 1) / LINE * LINE;
}

static const struct section *section_of(const char *start, const char *stop)
{
	struct section *section;

	for (section = __atomic_load_n(&sections, __ATOMIC_ACQUIRE); section; section = section->next) {
		if (section->start == start)
			return section;
	}
	pthread_mutex_lock(&lock);
	for (section = sections; section && section->start != start; section = section->next)
		;
	if (!section) {
		unsigned int cpu;

		section = malloc(sizeof(*section));
		if (!section)
			abort();
		section->start = start;
		section->stride = rounded((size_t)(stop - start));
		section->copies = aligned_alloc(LINE, section->stride * uw_kernel_nr_cpus());
		if (!section->copies)
			abort();
		for (cpu = 0; cpu < uw_kernel_nr_cpus(); cpu++)
			memcpy(section->copies + cpu * section->stride, start, (size_t)(stop - start));
		section->next = sections;
		__atomic_store_n(&sections, section, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return section;
}

/* Before what alloc_percpu() gives. */
struct header {
	size_t stride;
};

void *uw_kernel_percpu_first(const void *start, const void *stop, const void *ptr, size_t *stride)
{
	uintptr_t at = (uintptr_t)ptr;

	if (at >= (uintptr_t)start && at < (uintptr_t)stop) {
		const struct section *section = section_of(start, stop);

		*stride = section->stride;
		return section->copies + (at - (uintptr_t)start);
	}
	*stride = ((const struct header *)(at - LINE))->stride;
	return (void *)at;
}

void *uw_kernel_percpu(const void *start, const void *stop, const void *ptr, unsigned int cpu)
{
	size_t stride;
	char *first = uw_kernel_percpu_first(start, stop, ptr, &stride);

	if (cpu >= uw_kernel_nr_cpus())
		cpu = 0;
	return first + cpu * stride;
}

void *uw_kernel_alloc_percpu(size_t size)
{
	size_t stride = rounded(size ? size : 1);
	size_t whole = LINE + stride * uw_kernel_nr_cpus();
	char *memory = aligned_alloc(LINE, whole);

	if (!memory)
		return NULL;
	memset(memory, 0, whole);
	((struct header *)(void *)memory)->stride = stride;
	return memory + LINE;
}

void uw_kernel_free_percpu(void *ptr)
{
	if (ptr)
		free((char *)ptr - LINE);
}
