// SPDX-License-Identifier: MIT OR Apache-2.0
/* Options of a mount line, by a table of patterns. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/parser.h>
#include <linux/slab.h>
#include <linux/string.h>

enum { OPT_SIZE, OPT_RO, OPT_ERR };

static const match_table_t tokens = {
	{ OPT_SIZE, "size=%u" },
	{ OPT_RO, "ro" },
	{ OPT_ERR, NULL },
};

static int parse_options(char *options, unsigned int *size, bool *ro)
{
	substring_t args[MAX_OPT_ARGS];
	char *p;

	while ((p = strsep(&options, ",")) != NULL) {
		int value;

		if (!*p)
			continue;
		switch (match_token(p, tokens, args)) {
		case OPT_SIZE:
			if (match_int(&args[0], &value))
				return -EINVAL;
			*size = value;
			break;
		case OPT_RO:
			*ro = true;
			break;
		default:
			return -EINVAL;
		}
	}
	return 0;
}

static int test_patterns(void)
{
	static const match_table_t table = { { 1, "%d:%x" }, { 2, "name=%3s" }, { 3, "100%%" }, { 4, "%u" }, { 9, NULL } };
	substring_t args[MAX_OPT_ARGS];
	char text[4], *name;
	int a, b;

	if (match_token("-12:ff", table, args) != 1 || match_int(&args[0], &a) || match_hex(&args[1], &b) || a != -12 ||
	    b != 255)
		return -EINVAL;
	/* The text goes on after the three characters. */
	if (match_token("name=abcd", table, args) != 9 || match_token("name=abc", table, args) != 2)
		return -EINVAL;
	name = match_strdup(&args[0]);
	if (!name || strcmp(name, "abc") || match_strlcpy(text, &args[0], 3) != 3 || strcmp(text, "ab"))
		return -EINVAL;
	kfree(name);
	if (match_token("100%", table, args) != 3 || match_token("7", table, args) != 4 || match_token("", table, args) != 9)
		return -EINVAL;
	return 0;
}

static int __init options_init(void)
{
	char *options = kstrdup("size=42,,ro", GFP_KERNEL);
	unsigned int size = 0;
	bool ro = false;
	int ret = test_patterns();

	if (ret)
		return ret;
	if (!options)
		return -ENOMEM;
	ret = parse_options(options, &size, &ro);
	kfree(options);
	pr_info("size %u ro %d: passed\n", size, ro);
	return ret ?: (size == 42 && ro ? 0 : -EINVAL);
}

static void __exit options_exit(void)
{
}

module_init(options_init);
module_exit(options_exit);
MODULE_LICENSE("Dual MIT/GPL");
