/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* cpu_relax(): see linux/compiler.h. */
#ifndef UWORK_KERNEL_ASM_PROCESSOR_H
#define UWORK_KERNEL_ASM_PROCESSOR_H

#include <linux/compiler.h>

#endif
