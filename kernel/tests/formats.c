// SPDX-License-Identifier: MIT OR Apache-2.0
/* The kernel's formats, in output and in memory; and the prefix of messages. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt
#include <stdio.h>
#include <unistd.h>

#include <linux/kernel.h>
#include <linux/string.h>

#include "check.h"

#define GIVES(expected, ...) \
	do { \
		char given[128]; \
		int length = snprintf(given, sizeof(given), __VA_ARGS__); \
		if (length != (int)strlen(expected) || strcmp(given, expected) != 0) { \
			pr_err("%s:%d: \"%s\" and not \"%s\"\n", __FILE__, __LINE__, given, expected); \
			failed++; \
		} \
	} while (0)

static int vformat(char *buf, size_t size, const char *fmt, ...)
{
	va_list args;
	int length;

	va_start(args, fmt);
	length = vsnprintf(buf, size, fmt, args);
	va_end(args);
	return length;
}

static void pointers(void)
{
	static unsigned char bytes[16] = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc,
					   0xdd, 0xee, 0xff };
	static unsigned char address[4] = { 192, 168, 0, 1 };
	static unsigned char loopback[16] = { [15] = 1 };
	static unsigned long map[1] = { 0x20f };
	void *all = bytes, *ip = address, *bits = map;

	GIVES("-EAGAIN|", "%pe|", ERR_PTR(-EAGAIN));
	GIVES("  -EIO|-EIO  |", "%6pe|%-6pe|", ERR_PTR(-EIO), ERR_PTR(-EIO));
	GIVES("0-3,9 020f", "%*pbl %*pb", 16, bits, 16, bits);
	GIVES("00 11 22|00:11:22|00-11-22|001122|", "%*ph|%*phC|%*phD|%*phN|", 3, all, 3, all, 3, all, 3, all);
	GIVES("00:11:22:33:44:55|00-11-22-33-44-55|001122334455|55:44:33:22:11:00", "%pM|%pMF|%pm|%pMR", all, all, all,
	      all);
	GIVES("192.168.0.1|192.168.000.001|1.0.168.192", "%pI4|%pi4|%pI4l", ip, ip, ip);
	GIVES("::1|0000:0000:0000:0000:0000:0000:0000:0001", "%pI6c|%pI6", (void *)loopback, (void *)loopback);
	GIVES("00112233-4455-6677-8899-aabbccddeeff", "%pUb", all);
	GIVES("33221100-5544-7766-8899-AABBCCDDEEFF", "%pUL", all);
	GIVES("      192.168.0.1.", "%17pI4.", ip);
}

static void others(void)
{
	char text[8];

	GIVES("    x|x    |", "%5c|%-5c|", 'x', 'x');
	GIVES("   ab|ab   |a|", "%5s|%-*s|%.1s|", "ab", 5, "ab", "ab");
	GIVES("0007|+3|ff|0x1f|", "%04d|%+d|%hhx|%#x|", 7, 3, (unsigned char)0xff, 0x1fu);
	GIVES("1.50|  2.5|", "%.2f|%5.1Lf|", 1.5, 2.5L);
	GIVES("-1 18446744073709551615", "%jd %ju", (intmax_t)-1, (uintmax_t)-1);
	CHECK(snprintf(text, sizeof(text), "%s", "longer than that") == 16 && strcmp(text, "longer ") == 0);
	CHECK(scnprintf(text, sizeof(text), "%s", "longer than that") == 7);
	CHECK(sprintf(text, "%pe", ERR_PTR(-EIO)) == 4 && strcmp(text, "-EIO") == 0);
	CHECK(vformat(text, sizeof(text), "%pe", ERR_PTR(-EIO)) == 4 && strcmp(text, "-EIO") == 0);
}

/* A module's name is its file's name without ".c"; the suffix is removed there and nowhere else. */
static void prefix(void)
{
	int out = dup(STDOUT_FILENO), file;
	FILE *stream = tmpfile();
	char text[256] = "";

	CHECK(stream && out >= 0);
	file = fileno(stream);
	dup2(file, STDOUT_FILENO);
	pr_info("plain\n");
	pr_info("%d arguments, formats.c: too\n", 1);
	printk(KERN_INFO KBUILD_MODNAME ": printed\n");
	printk(KERN_INFO "no prefix.c\n");
	printk("%s: an argument\n", "formats.c");
	dup2(out, STDOUT_FILENO);
	CHECK(pread(file, text, sizeof(text) - 1, 0) > 0);
	CHECK(strcmp(text, "formats: plain\nformats: 1 arguments, formats.c: too\nformats: printed\nno prefix.c\n"
			   "formats.c: an argument\n") == 0);
	fclose(stream);
	close(out);
}

static int __init formats_init(void)
{
	pointers();
	others();
	prefix();
	return checked();
}
module_init(formats_init)

MODULE_LICENSE("GPL");
