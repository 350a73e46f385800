/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Names of functions, if the program exports them. */
#ifndef UWORK_KERNEL_LINUX_KALLSYMS_H
#define UWORK_KERNEL_LINUX_KALLSYMS_H

#include <linux/kernel.h>

#define KSYM_NAME_LEN 512
#define KSYM_SYMBOL_LEN (KSYM_NAME_LEN + 64)

/* Returns the length. `buf` has KSYM_SYMBOL_LEN bytes. */
static inline int sprint_symbol(char *buf, unsigned long address)
{
	return scnprintf(buf, KSYM_SYMBOL_LEN, "%pS", (void *)address);
}

#endif
