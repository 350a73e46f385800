/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where no call may wait for items. There a wait fails, and an item on the caller's stack would stay queued. */
#ifndef UWORK_KERNEL_MAY_WAIT_H
#define UWORK_KERNEL_MAY_WAIT_H

#include <uw_kernel.h>

/* Whether the caller is in no thread hook and in no item of a BH queue. */
static inline bool uw_kernel_may_wait(void)
{
	return !(uw_kernel_context() & (UW_KERNEL_IN_HOOK | UW_KERNEL_IN_BH));
}

#endif
