/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the tests of the environment. */
#ifndef CHECK_H
#define CHECK_H

static int failed;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			failed++; \
		} \
	} while (0)

static inline int ended(void)
{
	if (failed)
		return -EIO;
	pr_info("ok\n");
	return 0;
}

#endif
