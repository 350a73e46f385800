/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory. */
#ifndef UWORK_KERNEL_LINUX_SLAB_H
#define UWORK_KERNEL_LINUX_SLAB_H

#include "../uw_kernel_slab.h"

#include "../uw_kernel_environment.h"

#endif
