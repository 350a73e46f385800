/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Annotations for functions that run once. */
#ifndef UWORK_KERNEL_LINUX_INIT_H
#define UWORK_KERNEL_LINUX_INIT_H

/* stdlib.h has a member named __init, so it must be included before the macro is defined. */
#include <stdlib.h>

#include <linux/compiler.h>

#define __init
#define __exit
#define __initdata
#define __exitdata
#define __initconst
#define __devinit

#endif
