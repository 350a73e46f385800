/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The extensions of %p in the kernel's formats. */
#include <arpa/inet.h>
#include <ctype.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <linux/errname.h>
#include <linux/bitmap.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include "format.h"

static void put_bitmap(struct uw_out *out, const unsigned long *bits, unsigned int count, bool as_list)
{
	unsigned long bit, last;
	bool is_first = true;
	char text[32];

	if (!as_list) {
		for (bit = (count + 31) / 32; bit-- > 0;) {
			unsigned long word = bits[bit * 32 / (8 * sizeof(long))] >> (bit * 32 % (8 * sizeof(long)));

			/* The first word has only as many digits as its bits need. */
			unsigned int used = is_first && count % 32 != 0 ? count % 32 : 32;

			word &= ~0ul >> (8 * sizeof(long) - used);
			snprintf(text, sizeof(text), "%s%0*x", is_first ? "" : ",", (int)(used + 3) / 4, (unsigned int)word);
			uw_put_text(out, text);
			is_first = false;
		}
		return;
	}
	for (bit = find_first_bit(bits, count); bit < count; bit = find_next_bit(bits, count, last + 1)) {
		last = find_next_zero_bit(bits, count, bit) - 1;
		if (last == bit)
			snprintf(text, sizeof(text), "%s%lu", is_first ? "" : ",", bit);
		else
			snprintf(text, sizeof(text), "%s%lu-%lu", is_first ? "" : ",", bit, last);
		uw_put_text(out, text);
		is_first = false;
	}
}

/* Defined in the library's Rust code. */
int uw_kernel_symbol_name(const void *address, char *buffer, size_t size);

static void put_symbol(struct uw_out *out, const void *address, bool with_offset)
{
	char text[64], name[128];
	Dl_info info;

	if (dladdr(address, &info) && info.dli_sname) {
		uw_put_text(out, info.dli_sname);
		if (with_offset) {
			snprintf(text, sizeof(text), "+0x%lx",
				 (unsigned long)((const char *)address - (const char *)info.dli_saddr));
			uw_put_text(out, text);
		}
		return;
	}
	/*
	 * dladdr() finds only exported functions. The others are in the program's debug information
	 * or symbol table.
	 */
	if (uw_kernel_symbol_name(address, name, sizeof(name)) > 0) {
		uw_put_text(out, name);
		return;
	}
	snprintf(text, sizeof(text), "%p", address);
	uw_put_text(out, text);
}

static void put_address(struct uw_out *out, const struct conversion *conversion, const void *pointer)
{
	char spec[36], text[64];

	snprintf(spec, sizeof(spec), "%sp", conversion->spec);
	snprintf(text, sizeof(text), spec, pointer);
	uw_put_text(out, text);
}

static void put_byte(struct uw_out *out, const char *spec, unsigned int byte)
{
	char text[8];

	snprintf(text, sizeof(text), spec, byte);
	uw_put_text(out, text);
}

/* %ph, %phC, %phD, %phN. */
static size_t put_bytes(struct uw_out *out, const char *letters, const unsigned char *bytes, size_t count)
{
	const char *between = letters[1] == 'C' ? ":" : letters[1] == 'D' ? "-" : letters[1] == 'N' ? "" : " ";
	size_t index;

	for (index = 0; index < count; index++) {
		uw_put_text(out, index > 0 ? between : "");
		put_byte(out, "%02x", bytes[index]);
	}
	return letters[1] && strchr("CDN", letters[1]) ? 2 : 1;
}

/* %pM, %pMR, %pMF, %pm, %pmR. */
static size_t put_mac(struct uw_out *out, const char *letters, const unsigned char *bytes)
{
	bool is_reverse = letters[1] == 'R', has_dashes = letters[0] == 'M' && letters[1] == 'F';
	size_t index;

	for (index = 0; index < 6; index++) {
		if (index > 0 && letters[0] == 'M')
			uw_put_text(out, has_dashes ? "-" : ":");
		put_byte(out, "%02x", bytes[is_reverse ? 5 - index : index]);
	}
	return is_reverse || has_dashes ? 2 : 1;
}

/* %pI4, %pi4, with h, n, b or l for the order of bytes; %pI6, %pi6, %pI6c. */
static size_t put_ip(struct uw_out *out, const char *letters, const unsigned char *bytes)
{
	bool is_plain = letters[0] == 'i';
	char text[INET6_ADDRSTRLEN];
	size_t index;

	if (letters[1] == '6') {
		if (letters[2] == 'c' && !is_plain) {
			uw_put_text(out, inet_ntop(AF_INET6, bytes, text, sizeof(text)));
			return 3;
		}
		for (index = 0; index < 16; index++) {
			if (index > 0 && index % 2 == 0 && !is_plain)
				uw_put_text(out, ":");
			put_byte(out, "%02x", bytes[index]);
		}
		return 2;
	}
	for (index = 0; index < 4; index++) {
		bool is_little = letters[2] == 'l' || (letters[2] == 'h' && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

		uw_put_text(out, index > 0 ? "." : "");
		put_byte(out, is_plain ? "%03u" : "%u", bytes[is_little ? 3 - index : index]);
	}
	return letters[2] && strchr("hnbl", letters[2]) ? 3 : 2;
}

/* %pUb, %pUB, %pUl, %pUL. */
static size_t put_uuid(struct uw_out *out, const char *letters, const unsigned char *bytes)
{
	static const unsigned char big[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
	static const unsigned char little[16] = { 3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15 };
	const unsigned char *order = letters[1] == 'l' || letters[1] == 'L' ? little : big;
	const char *spec = letters[1] == 'B' || letters[1] == 'L' ? "%02X" : "%02x";
	size_t index;

	for (index = 0; index < 16; index++) {
		if (index == 4 || index == 6 || index == 8 || index == 10)
			uw_put_text(out, "-");
		put_byte(out, spec, bytes[order[index]]);
	}
	return letters[1] && strchr("bBlL", letters[1]) ? 2 : 1;
}

size_t uw_put_pointer(struct uw_out *out, const struct conversion *conversion, const char *letters,
		      const void *pointer)
{
	size_t count = 0;

	while (isalnum((unsigned char)letters[count]))
		count++;
	switch (letters[0]) {
	case 'e':
		if (IS_ERR(pointer)) {
			const char *name = errname((int)PTR_ERR(pointer));
			char text[16];

			snprintf(text, sizeof(text), "%ld", PTR_ERR(pointer));
			uw_put_text(out, name ? name : text);
		} else {
			put_address(out, conversion, pointer);
		}
		return 1;
	case 's':
	case 'S':
		put_symbol(out, pointer, letters[0] == 'S');
		return 1;
	case 'b':
		put_bitmap(out, pointer, conversion->has_width ? (unsigned int)conversion->width : 64,
			   letters[1] == 'l');
		return letters[1] == 'l' ? 2 : 1;
	case 'h':
		return put_bytes(out, letters, pointer, conversion->has_width ? conversion->width : 1);
	case 'M':
	case 'm':
		return put_mac(out, letters, pointer);
	case 'I':
	case 'i':
		if (letters[1] == '4' || letters[1] == '6')
			return put_ip(out, letters, pointer);
		put_address(out, conversion, pointer);
		return 0;
	case 'U':
		return put_uuid(out, letters, pointer);
	case 'V': {
		const struct va_format *format = pointer;
		char text[512];
		va_list args;

		va_copy(args, *format->va);
		uw_kernel_vsnprintf(text, sizeof(text), format->fmt, args);
		va_end(args);
		uw_put_text(out, text);
		return 1;
	}
	case 'K':
	case 'x':
		put_address(out, conversion, pointer);
		return 1;
	default:
		put_address(out, conversion, pointer);
		/*
		 * Unknown letters that begin with a capital belong to the conversion. Small ones
		 * are text of the message.
		 */
		return isupper((unsigned char)letters[0]) ? count : 0;
	}
}
