/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * pthread_cancel() of a thread that is inside a function of the headers. A function that holds a lock or a file at a
 * cancellation point holds cancellation off. kernel_read(), kernel_write() and vfs_fsync() hold nothing: they are
 * cancellation points as read(2) is.
 */
#ifndef UWORK_KERNEL_CANCEL_H
#define UWORK_KERNEL_CANCEL_H

#include <pthread.h>

static inline int uw_hold_cancel_off(void)
{
	int before = PTHREAD_CANCEL_DISABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void uw_allow_cancel_again(const int *before)
{
	pthread_setcancelstate(*before, NULL);
}

/* From this declaration to the end of its block. */
#define UW_HOLD_CANCEL_OFF \
	const int uw_before_cancel __attribute__((cleanup(uw_allow_cancel_again), unused)) = uw_hold_cancel_off()

#endif
