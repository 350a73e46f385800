/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Hexadecimal dumps of memory. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/printk.h>

#define LINE_MAX_BYTES 32

/* A group of bytes as a number in the machine's byte order. */
static u64 group_at(const unsigned char *at, int size)
{
	u64 value = 0;

	memcpy(&value, at, (size_t)size);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	value >>= 64 - 8 * size;
#endif
	return value;
}

int hex_dump_to_buffer(const void *buf, size_t len, int rowsize, int groupsize, char *line, size_t size, bool ascii)
{
	const unsigned char *bytes = buf;
	int column, used = 0;
	size_t at;

	if (rowsize != 16 && rowsize != 32)
		rowsize = 16;
	if (len > (size_t)rowsize)
		len = (size_t)rowsize;
	if (groupsize <= 0 || groupsize > 8 || !is_power_of_2((unsigned long)groupsize) || len % (size_t)groupsize != 0)
		groupsize = 1;
	/* Like snprintf(): counts the full length, also beyond the end of the buffer. */
#define PUT(...) \
	(used += snprintf(line && (size_t)used < size ? line + used : NULL, (size_t)used < size ? size - (size_t)used : 0, \
			  __VA_ARGS__))
	if (size > 0)
		line[0] = '\0';
	for (at = 0; at < len; at += (size_t)groupsize)
		PUT("%s%0*llx", at ? " " : "", 2 * groupsize, (unsigned long long)group_at(bytes + at, groupsize));
	if (!ascii || len == 0)
		return used;
	column = rowsize * 2 + rowsize / groupsize + 1;
	PUT("%*s", column - used, "");
	for (at = 0; at < len; at++)
		PUT("%c", bytes[at] < 0x7f && isprint(bytes[at]) ? bytes[at] : '.');
#undef PUT
	return used;
}

void print_hex_dump(const char *level, const char *prefix, int prefix_type, int rowsize, int groupsize, const void *buf,
		    size_t len, bool ascii)
{
	/* Two digits and a space for each byte, two spaces, and one character for each byte. */
	char line[LINE_MAX_BYTES * 4 + 3];
	const char *bytes = buf;
	size_t at;

	if (rowsize != 16 && rowsize != 32)
		rowsize = 16;
	for (at = 0; at < len; at += (size_t)rowsize) {
		hex_dump_to_buffer(bytes + at, len - at, rowsize, groupsize, line, sizeof(line), ascii);
		switch (prefix_type) {
		case DUMP_PREFIX_ADDRESS:
			printk("%s%s%p: %s\n", level, prefix, (const void *)(bytes + at), line);
			break;
		case DUMP_PREFIX_OFFSET:
			printk("%s%s%.8zx: %s\n", level, prefix, at, line);
			break;
		default:
			printk("%s%s%s\n", level, prefix, line);
			break;
		}
	}
}
