/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Lists of bits as text. */
#include <errno.h>
#include <stdbool.h>

#include <linux/bitmap.h>
#include <linux/ctype.h>
#include <linux/kernel.h>

/* Reads a decimal number, or N for the last bit. Returns what follows; NULL if there is none. */
static const char *read_bit(const char *text, unsigned int bits, unsigned long *bit)
{
	char *end;

	if (*text == 'N') {
		*bit = bits - 1ul;
		return text + 1;
	}
	if (!isdigit((unsigned char)*text))
		return NULL;
	*bit = simple_strtoul(text, &end, 10);
	return end;
}

/* One range: first, first-last, first-last:used/group, or all, in any case. */
static int read_range(const char **text, unsigned long *map, unsigned int bits)
{
	unsigned long first, last, used = 1, group = 1, bit;
	const char *at = *text;

	if (strncasecmp(at, "all", 3) == 0) {
		first = 0;
		last = bits - 1ul;
		at += 3;
	} else {
		at = read_bit(at, bits, &first);
		last = first;
		if (at && *at == '-')
			at = read_bit(at + 1, bits, &last);
	}
	if (at && *at == ':') {
		at = read_bit(at + 1, bits, &used);
		at = at && *at == '/' ? read_bit(at + 1, bits, &group) : NULL;
	}
	if (!at || last < first || group == 0 || used > group)
		return -EINVAL;
	if (last >= bits)
		return -ERANGE;
	for (bit = first; bit <= last; bit++) {
		if ((bit - first) % group < used)
			__set_bit(bit, map);
	}
	*text = at;
	return 0;
}

int bitmap_parselist(const char *text, unsigned long *map, int bits)
{
	bitmap_zero(map, (unsigned int)bits);
	for (;;) {
		int error;

		while (isspace((unsigned char)*text) || *text == ',')
			text++;
		if (!*text)
			return 0;
		error = read_range(&text, map, (unsigned int)bits);
		if (error)
			return error;
		if (*text && *text != ',' && !isspace((unsigned char)*text))
			return -EINVAL;
	}
}
