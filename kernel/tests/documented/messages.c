// SPDX-License-Identifier: MIT OR Apache-2.0
/* Messages: levels, pr_fmt, the kernel's own formats, rate limits and warnings that fire once. */
#define pr_fmt(fmt) "%s: " fmt, __func__

#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/ratelimit.h>
#include <linux/types.h>

static DEFINE_RATELIMIT_STATE(limit, 86400 * HZ, 3);

static int render(char *buffer, size_t size, const char *fmt, ...)
{
	struct va_format vaf;
	va_list args;
	int n;

	va_start(args, fmt);
	vaf.fmt = fmt;
	vaf.va = &args;
	n = scnprintf(buffer, size, "[%pV]", &vaf);
	va_end(args);
	return n;
}

static int __init messages_init(void)
{
	u8 mac[] = { 0, 0x11, 0x22, 0xab, 0xcd, 0xef };
	char buffer[64];
	int i, printed = 0;

	for (i = 0; i < 10; i++)
		if (__ratelimit(&limit))
			printed++;
	if (printed != 3)
		return -EINVAL;
	printk(KERN_INFO "plain %d\n", 1);
	pr_debug("not shown %d\n", 2);
	pr_notice("number %u of %zu, %llx\n", 1u, sizeof(mac), 0xdeadbeefULL);
	pr_info_once("once\n");
	pr_info_ratelimited("limited\n");
	pr_cont("continued\n");
	print_hex_dump(KERN_INFO, "mac: ", DUMP_PREFIX_OFFSET, 16, 1, mac, sizeof(mac), true);

	snprintf(buffer, sizeof(buffer), "%pM %*phC %pe", mac, 2, mac, ERR_PTR(-EAGAIN));
	if (strcmp(buffer, "00:11:22:ab:cd:ef 00:11 -EAGAIN"))
		return -EINVAL;
	snprintf(buffer, sizeof(buffer), "%ps", messages_init);
	if (!strstarts(buffer, "messages_init"))
		return -EINVAL;
	if (render(buffer, sizeof(buffer), "%d-%s", 5, "x") != 5 || strcmp(buffer, "[5-x]"))
		return -EINVAL;
	if (scnprintf(buffer, 4, "%s", "abcdef") != 3 || snprintf(buffer, 4, "%s", "abcdef") != 6)
		return -EINVAL;
	if (WARN_ON(printed != 3) || WARN_ONCE(printed > 3, "%d printed\n", printed))
		return -EINVAL;
	pr_info("passed\n");
	return 0;
}

static void __exit messages_exit(void)
{
}

module_init(messages_init);
module_exit(messages_exit);
MODULE_LICENSE("GPL");
