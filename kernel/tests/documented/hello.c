// SPDX-License-Identifier: MIT OR Apache-2.0
/* The smallest modules of the tutorials: no names for init and exit, and data in init sections. */
#include <linux/init.h>		/* Needed for the macros */
#include <linux/module.h>	/* Needed by all modules */
#include <linux/printk.h>	/* Needed for pr_info() */

static int hello_data __initdata = 3;

int init_module(void)
{
	pr_info("Hello world %d: passed\n", hello_data);
	return 0;
}

void cleanup_module(void)
{
	pr_info("Goodbye world.\n");
}

MODULE_LICENSE("GPL");
