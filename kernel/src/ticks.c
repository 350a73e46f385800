/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The thread that counts `jiffies` up. It exists only where an object refers to the variable: the
 * program has it linked in, or has a relocation for it.
 */
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "cancel.h"
#include "fork.h"
#include "ticks.h"

/* Weak, so that it does not link the variable into a program that does not read it. */
extern volatile unsigned long uw_kernel_tick_count __attribute__((weak));

#define NS_PER_SEC 1000000000ul

/* Defined in Rust. */
size_t uw_service_stack_size(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Written under the lock; 0 if no object reads the variable. */
static unsigned long tick_ns;
/* Whether the thread exists or a thread creates it. */
static bool is_counted;

/* The program reads the variable without atomics, as the kernel does: a race detector must not see the store. */
__attribute__((no_sanitize("thread"))) static void count(unsigned long ns)
{
	struct timespec now;
	unsigned long ticks;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ticks = ((unsigned long)now.tv_sec * NS_PER_SEC + (unsigned long)now.tv_nsec) / ns;
	/* Never back: the caller holds the lock. */
	if ((long)(ticks - uw_kernel_tick_count) > 0)
		uw_kernel_tick_count = ticks;
}

static void set_to_now(void)
{
	pthread_mutex_lock(&lock);
	count(tick_ns);
	pthread_mutex_unlock(&lock);
}

static void *count_forever(void *arg)
{
	struct timespec next;

	(void)arg;
	prctl(PR_SET_TIMERSLACK, 1ul);
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		uint64_t ns = (uint64_t)next.tv_sec * NS_PER_SEC + (uint64_t)next.tv_nsec;

		ns = (ns / tick_ns + 1) * tick_ns;
		next.tv_sec = (time_t)(ns / NS_PER_SEC);
		next.tv_nsec = (long)(ns % NS_PER_SEC);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		set_to_now();
		/* Ticks that were missed are not made up for one by one. */
		clock_gettime(CLOCK_MONOTONIC, &next);
	}
	return NULL;
}

/* No signal of the process is handled by this thread. */
static int create(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, uw_service_stack_size());
	error = pthread_create(&thread, &attributes, count_forever, NULL);
	if (!error)
		pthread_setname_np(thread, "uwork:jiffies");
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

/*
 * Starts the thread if it does not exist. After a failure the next call tries again. Without a lock: the creation may
 * wait for an allocator, whose locks a fork takes before the one above.
 */
static void start(void)
{
	static bool said;
	int error, saved = errno;
	UW_HOLD_CANCEL_OFF;

	if (__atomic_exchange_n(&is_counted, true, __ATOMIC_RELAXED))
		return;
	error = create();
	if (error) {
		__atomic_store_n(&is_counted, false, __ATOMIC_RELAXED);
		if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
			dprintf(STDERR_FILENO, "uwork: no thread for jiffies, which advances only in sleeps, waits and timers: %s\n",
				strerror(error));
	}
	errno = saved;
}

void uw_tick(void)
{
	if (!__atomic_load_n(&tick_ns, __ATOMIC_RELAXED))
		return;
	if (!__atomic_load_n(&is_counted, __ATOMIC_RELAXED))
		start();
	set_to_now();
}

/* Allocates nothing, so it starts no thread: an allocator may still hold the locks that it takes before a fork. */
void uw_ticks_fork(enum uw_fork at)
{
	uw_fork_mutex(&lock, at);
	if (at == UW_FORK_CHILD)
		is_counted = false;
}

/*
 * Starts the thread in every child: the child may read the variable without a call of the library. The allocator has
 * registered its handlers before, at its first use at the latest, and so has released its locks when this one runs.
 */
static void watch_forks(void)
{
	void *volatile first_use = malloc(1);

	free(first_use);
	pthread_atfork(NULL, NULL, uw_tick);
}

/* ----------------------------------------------------------------------------------- relocations */

struct search {
	unsigned int objects;
	bool found;
};

/* An address of the dynamic section: relocated by some systems, relative to the object in others. */
static const void *at(const struct dl_phdr_info *object, ElfW(Addr) address)
{
	return (const void *)(address < object->dlpi_addr ? address + object->dlpi_addr : address);
}

/* Whether the object refers to the variable. */
static bool refers(const struct dl_phdr_info *object, const ElfW(Dyn) *dynamic)
{
	const ElfW(Rela) *relocations = NULL;
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	size_t size = 0, index;

	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		switch (dynamic->d_tag) {
		case DT_RELA: relocations = at(object, dynamic->d_un.d_ptr); break;
		case DT_RELASZ: size = dynamic->d_un.d_val; break;
		case DT_SYMTAB: symbols = at(object, dynamic->d_un.d_ptr); break;
		case DT_STRTAB: names = at(object, dynamic->d_un.d_ptr); break;
		default: break;
		}
	}
	if (!relocations || !symbols || !names)
		return false;
	for (index = 0; index < size / sizeof(*relocations); index++) {
		size_t symbol = relocations[index].r_info >> (sizeof(ElfW(Addr)) == 8 ? 32 : 8);

		if (symbol && strcmp(names + symbols[symbol].st_name, "uw_kernel_tick_count") == 0)
			return true;
	}
	return false;
}

static int search_object(struct dl_phdr_info *object, size_t size, void *arg)
{
	struct search *search = arg;
	const ElfW(Dyn) *dynamic = NULL;
	bool is_own = false;
	size_t index;

	(void)size;
	for (index = 0; index < object->dlpi_phnum; index++) {
		const ElfW(Phdr) *header = &object->dlpi_phdr[index];
		uintptr_t start_at = object->dlpi_addr + header->p_vaddr;

		if (header->p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)start_at;
		if (header->p_type == PT_LOAD && (uintptr_t)search_object - start_at < header->p_memsz)
			is_own = true;
	}
	/* The first object is the program. If this code is part of it, so is the variable, because it is read. */
	if (is_own)
		search->found |= search->objects == 0;
	else if (dynamic)
		search->found |= refers(object, dynamic);
	search->objects++;
	return search->found;
}

void uw_kernel_tick_if_read(unsigned long hz)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct search search = { 0, false };

	if (!&uw_kernel_tick_count || __atomic_load_n(&tick_ns, __ATOMIC_RELAXED))
		return;
	dl_iterate_phdr(search_object, &search);
	if (!search.found)
		return;
	uw_watch_forks();
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock);
	if (!tick_ns)
		__atomic_store_n(&tick_ns, NS_PER_SEC / hz, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
	uw_tick();
}
