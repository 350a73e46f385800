/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Annotations for functions that run once. */
#ifndef UWORK_KERNEL_LINUX_INIT_H
#define UWORK_KERNEL_LINUX_INIT_H

/* It has a member named __init. In C, ../stdlib.h takes care of that, which C++'s own headers pass by. */
#ifdef __cplusplus
#include <stdlib.h>
#endif

#include <linux/compiler.h>

#define __init
#define __exit
#define __initdata
#define __exitdata
#define __initconst
#define __devinit

/* Parameters of the kernel's command line do nothing for a module. */
#define UW_NO_PARAMETER(function) \
	static int (*const UW_PASTE(uw_setup_, function))(char *) __maybe_unused = (function)
#define __setup(text, function) UW_NO_PARAMETER(function)
#define early_param(text, function) UW_NO_PARAMETER(function)

#endif
