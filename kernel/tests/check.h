/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of a module, whose init function fails if one has failed. */
#ifndef CHECK_H
#define CHECK_H

#include <linux/errno.h>
#include <linux/module.h>
#include <linux/printk.h>

static int failed;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			failed++; \
		} \
	} while (0)

static inline int checked(void)
{
	if (failed)
		return -EIO;
	pr_info("ok\n");
	return 0;
}

#endif
