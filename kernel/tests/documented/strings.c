// SPDX-License-Identifier: MIT OR Apache-2.0
/* Strings: allocation, parsing, formats. */
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>

static const char * const modes[] = { "off", "slow", "fast" };

static int __init strings_init(void)
{
	char *text __free(kfree) = kasprintf(GFP_KERNEL, "%s=%d,%s", "speed", 12, "fast");
	char *rest, *part, small[8];
	int number, ret;
	unsigned long long big;
	bool yes;
	u8 mac[6] = { 0, 0x1b, 2, 3, 4, 0xff };
	char shown[32];

	if (!text)
		return -ENOMEM;
	rest = text;
	part = strsep(&rest, "=");
	if (strcmp(part, "speed"))
		return -EINVAL;
	part = strsep(&rest, ",");
	ret = kstrtoint(part, 0, &number);
	if (ret || number != 12)
		return ret ?: -EINVAL;
	if (match_string(modes, ARRAY_SIZE(modes), rest) != 2 || sysfs_streq("fast\n", "fast") == 0)
		return -EINVAL;
	if (kstrtou8("256", 10, mac) != -ERANGE || kstrtoull("0xffff\n", 0, &big) || big != 65535 ||
	    kstrtobool("y", &yes) || !yes || kstrtoint("12x", 10, &number) != -EINVAL)
		return -EINVAL;
	if (strscpy(small, "too long for this", sizeof(small)) != -E2BIG || strcmp(small, "too lon"))
		return -EINVAL;
	if (scnprintf(small, sizeof(small), "%s", "0123456789") != 7)
		return -EINVAL;
	snprintf(shown, sizeof(shown), "%pM", mac);
	if (strcmp(shown, "00:1b:02:03:04:ff"))
		return -EINVAL;
	snprintf(shown, sizeof(shown), "%*ph", 3, mac);
	if (strcmp(shown, "00 1b 02") || strim(strcpy(shown, "  ab ")) != shown + 2 || !isxdigit('f'))
		return -EINVAL;
	if (!str_has_prefix("kernel", "ker") || strchrnul("abc", 'x')[0] || memchr_inv("aaa", 'a', 3))
		return -EINVAL;
	pr_info("strings: passed\n");
	return 0;
}

static void __exit strings_exit(void) {}
module_init(strings_init);
module_exit(strings_exit);
MODULE_LICENSE("GPL");
