/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the kernel-compatible headers have in the library. */
#ifndef UWORK_KERNEL_UW_KERNEL_H
#define UWORK_KERNEL_UW_KERNEL_H

#include "../../uwork.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the library exports has its prefix, whatever it is called in a program. */
#define UW_KERNEL_NAME(name) __asm__("uw_kernel_" #name)

/* Which argument is a format, and which the first that it tells of. Compilers take %p with letters behind it. */
#define UW_KERNEL_FORMAT(at, first) __attribute__((__format__(__printf__, at, first)))

/* Sleeps while *word is value, or until timeout_ns have passed; may wake up early. Declared to the pool. */
void uw_kernel_wait(const uint32_t *word, uint32_t value, uint64_t timeout_ns);
/* The same, not declared. */
void uw_kernel_wait_unseen(const uint32_t *word, uint32_t value, uint64_t timeout_ns);
void uw_kernel_wake(const uint32_t *word, int count);
#define UW_KERNEL_FOREVER UINT64_MAX

/* Of the monotonic clock. */
uint64_t uw_kernel_now_ns(void);
/* CLOCK_* of clock_gettime(). */
uint64_t uw_kernel_clock_ns(int clock);

/* Where the caller is: bits. */
unsigned int uw_kernel_context(void);
#define UW_KERNEL_IN_WORKER 1u
#define UW_KERNEL_IN_BH 2u

/* Says that a call with a bool for an answer was wrong: once for each place that calls, and errno. */
void uw_kernel_complain(int code);

#ifdef __cplusplus
}
#endif

#endif
