/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The kernel's formats: snprintf()'s, and more behind %p. One conversion at a time is given to snprintf(). */
#include <ctype.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <linux/bitmap.h>
#include <linux/err.h>
#include <linux/kernel.h>

struct out {
	char *buf;
	size_t size;
	size_t length;
};

static void put(struct out *out, const char *text, size_t length)
{
	size_t index;

	for (index = 0; index < length; index++, out->length++) {
		if (out->length + 1 < out->size)
			out->buf[out->length] = text[index];
	}
}

static void put_text(struct out *out, const char *text)
{
	put(out, text, strlen(text));
}

/* A conversion: "%-08" and so on in `spec`, up to its letter. */
struct conversion {
	char spec[32];
	size_t length;
	int width;
	bool has_width;
};

static void add(struct conversion *conversion, char c)
{
	if (conversion->length + 1 < sizeof(conversion->spec))
		conversion->spec[conversion->length++] = c;
	conversion->spec[conversion->length] = '\0';
}

static void add_number(struct conversion *conversion, int number)
{
	char text[12];
	size_t index;

	snprintf(text, sizeof(text), "%d", number);
	for (index = 0; text[index]; index++)
		add(conversion, text[index]);
}

static void put_bitmap(struct out *out, const unsigned long *bits, unsigned int count, bool as_list)
{
	unsigned long bit, last;
	bool is_first = true;
	char text[32];

	if (!as_list) {
		for (bit = (count + 31) / 32; bit-- > 0;) {
			unsigned long word = bits[bit * 32 / (8 * sizeof(long))] >> (bit * 32 % (8 * sizeof(long)));

			snprintf(text, sizeof(text), "%s%08x", is_first ? "" : ",", (unsigned int)word);
			put_text(out, text);
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
		put_text(out, text);
		is_first = false;
	}
}

/* In the Rust part. */
int uw_kernel_symbol_name(const void *address, char *buffer, size_t size);

static void put_symbol(struct out *out, const void *address, bool with_offset)
{
	char text[64], name[128];
	Dl_info info;

	if (dladdr(address, &info) && info.dli_sname) {
		put_text(out, info.dli_sname);
		if (with_offset) {
			snprintf(text, sizeof(text), "+0x%lx",
				 (unsigned long)((const char *)address - (const char *)info.dli_saddr));
			put_text(out, text);
		}
		return;
	}
	/* Functions that nobody else links to are found in the program's debug information or symbol table. */
	if (uw_kernel_symbol_name(address, name, sizeof(name)) > 0) {
		put_text(out, name);
		return;
	}
	snprintf(text, sizeof(text), "%p", address);
	put_text(out, text);
}

static void put_address(struct out *out, const struct conversion *conversion, const void *pointer)
{
	char spec[36], text[64];

	snprintf(spec, sizeof(spec), "%sp", conversion->spec);
	snprintf(text, sizeof(text), spec, pointer);
	put_text(out, text);
}

/* What the letters behind %p say; returns how many of them there are. */
static size_t put_pointer(struct out *out, const struct conversion *conversion, const char *letters,
			  const void *pointer)
{
	size_t count = 0;

	while (isalnum((unsigned char)letters[count]))
		count++;
	switch (letters[0]) {
	case 'e':
		if (IS_ERR(pointer)) {
			const char *name = strerrorname_np((int)-PTR_ERR(pointer));
			char text[16];

			snprintf(text, sizeof(text), "%ld", PTR_ERR(pointer));
			put_text(out, name ? "-" : "");
			put_text(out, name ? name : text);
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
	case 'V': {
		struct va_format {
			const char *fmt;
			va_list *va;
		} const *format = pointer;
		char text[512];
		va_list args;

		va_copy(args, *format->va);
		uw_kernel_vsnprintf(text, sizeof(text), format->fmt, args);
		va_end(args);
		put_text(out, text);
		return 1;
	}
	case 'K':
	case 'x':
		put_address(out, conversion, pointer);
		return 1;
	default:
		put_address(out, conversion, pointer);
		/* Letters that are no words of the message: they begin with a capital one. */
		return isupper((unsigned char)letters[0]) ? count : 0;
	}
}

/* Flags, width and precision; leaves `*fmt` at the length or the letter. */
static void parse(struct conversion *conversion, const char **fmt, va_list *args)
{
	const char *at = *fmt;

	conversion->length = 0;
	conversion->has_width = false;
	add(conversion, '%');
	while (*at && strchr("-+ #0", *at))
		add(conversion, *at++);
	if (*at == '*') {
		conversion->width = va_arg(*args, int);
		conversion->has_width = true;
		add_number(conversion, conversion->width);
		at++;
	} else if (isdigit((unsigned char)*at)) {
		conversion->width = 0;
		conversion->has_width = true;
		while (isdigit((unsigned char)*at)) {
			conversion->width = conversion->width * 10 + (*at - '0');
			add(conversion, *at++);
		}
	}
	if (*at == '.') {
		add(conversion, *at++);
		if (*at == '*') {
			add_number(conversion, va_arg(*args, int));
			at++;
		}
		while (isdigit((unsigned char)*at))
			add(conversion, *at++);
	}
	*fmt = at;
}

enum size { SIZE_CHAR, SIZE_SHORT, SIZE_INT, SIZE_LONG, SIZE_LONG_LONG, SIZE_SIZE, SIZE_PTRDIFF };

static enum size parse_size(const char **fmt)
{
	const char *at = *fmt;
	enum size size = SIZE_INT;

	switch (*at) {
	case 'h':
		size = at[1] == 'h' ? SIZE_CHAR : SIZE_SHORT;
		break;
	case 'l':
		size = at[1] == 'l' ? SIZE_LONG_LONG : SIZE_LONG;
		break;
	case 'L':
	case 'q':
		size = SIZE_LONG_LONG;
		break;
	case 'z':
	case 'Z':
		size = SIZE_SIZE;
		break;
	case 't':
		size = SIZE_PTRDIFF;
		break;
	default:
		return SIZE_INT;
	}
	*fmt = at + (size == SIZE_CHAR || (size == SIZE_LONG_LONG && *at == 'l') ? 2 : 1);
	return size;
}

static void put_integer(struct out *out, struct conversion *conversion, enum size size, char letter, va_list *args)
{
	bool is_signed = letter == 'd' || letter == 'i';
	char spec[40], text[128];
	long long value;

	switch (size) {
	case SIZE_LONG:
		value = is_signed ? va_arg(*args, long) : (long long)va_arg(*args, unsigned long);
		break;
	case SIZE_LONG_LONG:
		value = va_arg(*args, long long);
		break;
	case SIZE_SIZE:
		value = is_signed ? va_arg(*args, ssize_t) : (long long)va_arg(*args, size_t);
		break;
	case SIZE_PTRDIFF:
		value = va_arg(*args, ptrdiff_t);
		break;
	default:
		value = is_signed ? va_arg(*args, int) : (long long)va_arg(*args, unsigned int);
		break;
	}
	if (size == SIZE_CHAR)
		value = is_signed ? (signed char)value : (unsigned char)value;
	else if (size == SIZE_SHORT)
		value = is_signed ? (short)value : (unsigned short)value;
	snprintf(spec, sizeof(spec), "%sll%c", conversion->spec, letter);
	snprintf(text, sizeof(text), spec, value);
	put_text(out, text);
}

static void put_string(struct out *out, const struct conversion *conversion, const char *string)
{
	char spec[36], text[1024];

	if (!string)
		string = "(null)";
	if (conversion->length == 1) {
		put_text(out, string);
		return;
	}
	snprintf(spec, sizeof(spec), "%ss", conversion->spec);
	snprintf(text, sizeof(text), spec, string);
	put_text(out, text);
}

int uw_kernel_vsnprintf(char *buf, size_t size, const char *fmt, va_list given)
{
	struct out out = { buf, size, 0 };
	struct conversion conversion;
	va_list args;

	va_copy(args, given);
	while (*fmt) {
		size_t plain = strcspn(fmt, "%");
		enum size length;

		put(&out, fmt, plain);
		fmt += plain;
		if (!*fmt++)
			break;
		parse(&conversion, &fmt, &args);
		length = parse_size(&fmt);
		switch (*fmt) {
		case '\0':
			fmt--;
			break;
		case '%':
			put(&out, "%", 1);
			break;
		case 'c': {
			char c = (char)va_arg(args, int);

			put(&out, &c, 1);
			break;
		}
		case 's':
			put_string(&out, &conversion, va_arg(args, const char *));
			break;
		case 'p':
			fmt += put_pointer(&out, &conversion, fmt + 1, va_arg(args, const void *));
			break;
		case 'd':
		case 'i':
		case 'u':
		case 'x':
		case 'X':
		case 'o':
			put_integer(&out, &conversion, length, *fmt, &args);
			break;
		default:
			put(&out, fmt, 1);
		}
		fmt++;
	}
	va_end(args);
	if (size > 0)
		buf[out.length < size ? out.length : size - 1] = '\0';
	return (int)out.length;
}

int scnprintf(char *buf, size_t size, const char *fmt, ...)
{
	va_list args;
	int length;

	va_start(args, fmt);
	length = uw_kernel_vsnprintf(buf, size, fmt, args);
	va_end(args);
	if (size == 0)
		return 0;
	return length < (int)size ? length : (int)size - 1;
}
