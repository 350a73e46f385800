/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Marks of what runs once. */
#ifndef UWORK_KERNEL_LINUX_INIT_H
#define UWORK_KERNEL_LINUX_INIT_H

/* It has a member of the name __init. */
#include <stdlib.h>

#include <linux/compiler.h>

#define __init
#define __exit
#define __initdata
#define __exitdata
#define __initconst
#define __devinit

#endif
