/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sleeping and clocks: the headers' only calls of the system. If the system refuses futex(2), the
 * process ends with the library's message: callers check their word again after every wait, so they
 * would spin forever, and sleepers that are not woken would sleep forever.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <uw_kernel.h>
#include <linux/delay.h>
#include "ticks.h"

/* Defined in Rust. */
_Noreturn void uw_futex_refused(int error);
int uw_declared_wait(void (*func)(void *arg), void *arg);

/*
 * Declares the wait to the pool. Callers check their word again, so a wait that cannot be declared
 * happens nevertheless: otherwise they would spin forever.
 */
static void wait_declared(void (*func)(void *arg), void *arg)
{
	if (uw_declared_wait(func, arg) < 0)
		func(arg);
}

struct sleep {
	const uint32_t *word;
	uint32_t value;
	const struct timespec *timeout;
};

static void do_wait(void *arg)
{
	const struct sleep *sleep = arg;

	if (syscall(SYS_futex, sleep->word, FUTEX_WAIT_PRIVATE, sleep->value, sleep->timeout, NULL, 0) == 0)
		return;
	/* The word had changed, a signal came, or the time has passed: the caller checks its word. */
	if (errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
		uw_futex_refused(errno);
}

static struct timespec timespec_of(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	return ts;
}

void uw_kernel_wait(const uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
	struct timespec timeout = timespec_of(timeout_ns);
	struct sleep sleep = { word, value, timeout_ns == UW_KERNEL_FOREVER ? NULL : &timeout };
	int saved = errno;

	wait_declared(do_wait, &sleep);
	uw_tick();
	errno = saved;
}

void uw_kernel_wait_unseen(const uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
	struct timespec timeout = timespec_of(timeout_ns);
	struct sleep sleep = { word, value, timeout_ns == UW_KERNEL_FOREVER ? NULL : &timeout };
	int saved = errno;

	do_wait(&sleep);
	errno = saved;
}

void uw_kernel_wake(const uint32_t *word, int count)
{
	int saved = errno;

	/* EFAULT: the memory was unmapped since, so no thread sleeps on the word. */
	if (syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0) < 0 && errno != EFAULT)
		uw_futex_refused(errno);
	errno = saved;
}

uint64_t uw_kernel_clock_ns(int clock)
{
	struct timespec ts;

	clock_gettime((clockid_t)clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

uint64_t uw_kernel_now_ns(void)
{
	return uw_kernel_clock_ns(CLOCK_MONOTONIC);
}

static void do_sleep(void *arg)
{
	struct timespec end = timespec_of(*(const uint64_t *)arg);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
		;
}

void uw_kernel_sleep_ns(uint64_t ns)
{
	uint64_t now = uw_kernel_now_ns();
	uint64_t end = ns > UINT64_MAX - now ? UINT64_MAX : now + ns;

	wait_declared(do_sleep, &end);
	uw_tick();
}
