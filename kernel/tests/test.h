// SPDX-License-Identifier: MIT OR Apache-2.0
/* A module whose init function fails if a check has failed. */
#ifndef TESTS_KERNEL_TEST_H
#define TESTS_KERNEL_TEST_H

#include <linux/module.h>

static int failed;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			failed++; \
		} \
	} while (0)

#define TESTS_END() (failed ? -EPROTO : 0)

#endif
