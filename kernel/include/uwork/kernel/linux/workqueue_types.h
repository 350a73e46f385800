/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See workqueue.h. */
#ifndef UWORK_KERNEL_LINUX_WORKQUEUE_TYPES_H
#define UWORK_KERNEL_LINUX_WORKQUEUE_TYPES_H

#include <linux/workqueue.h>

#endif
