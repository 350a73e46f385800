/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef OWN_JIFFIES_H
#define OWN_JIFFIES_H

#include <time.h>

#include <linux/types.h>

#define HZ 100

static inline unsigned long own_jiffies(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long)now.tv_sec * HZ + (unsigned long)now.tv_nsec / (1000000000 / HZ);
}

#define jiffies own_jiffies()

#endif
