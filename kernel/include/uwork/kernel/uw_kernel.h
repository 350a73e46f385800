/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The library functions behind the kernel-compatible headers. */
#ifndef UWORK_KERNEL_UW_KERNEL_H
#define UWORK_KERNEL_UW_KERNEL_H

#include "../../uwork.h"

/* A member or function that the kernel has and this library has not: its use does not compile, and says why. */
#if defined(__has_attribute)
#if __has_attribute(__unavailable__)
#define UW_KERNEL_INSTEAD(text) __attribute__((__unavailable__(text)))
#endif
#endif
#ifndef UW_KERNEL_INSTEAD
#define UW_KERNEL_INSTEAD(text) __attribute__((__deprecated__(text)))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Exported symbols have the library's prefix, whatever their name in the program is. */
#define UW_KERNEL_NAME(name) __asm__("uw_kernel_" #name)

/*
 * `at` is the format argument and `first` the first one that it formats. Compilers accept letters
 * after %p.
 */
#define UW_KERNEL_FORMAT(at, first) __attribute__((__format__(__printf__, at, first)))

/*
 * Sleeps while *word equals value, or until timeout_ns have passed. May return early. The wait is
 * declared to the pool.
 */
void uw_kernel_wait(const uint32_t *word, uint32_t value, uint64_t timeout_ns);
/* The same, without declaring the wait. */
void uw_kernel_wait_unseen(const uint32_t *word, uint32_t value, uint64_t timeout_ns);
void uw_kernel_wake(const uint32_t *word, int count);
#define UW_KERNEL_FOREVER UINT64_MAX

/* The monotonic clock. */
uint64_t uw_kernel_now_ns(void);
/* The CLOCK_* clocks of clock_gettime(). */
uint64_t uw_kernel_clock_ns(int clock);

/* The caller's context, as bits. */
unsigned int uw_kernel_context(void);
#define UW_KERNEL_IN_WORKER 1u /* also a rescuer, and in a thread hook */
#define UW_KERNEL_IN_BH 2u
#define UW_KERNEL_IN_HOOK 4u /* a thread hook, which must not wait for items */

/*
 * Reports a failed call of a function that returns bool: once for each calling location and errno
 * value. A refused wait for items ends the process: its caller would free what it has not waited for.
 */
void uw_kernel_complain(int code);

#ifdef __cplusplus
}
#endif

#endif
