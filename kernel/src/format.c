/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The kernel's formats: those of snprintf(), and the extensions of %p. snprintf() gets one
 * conversion at a time.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/sysfs.h>
#include "format.h"

void uw_put(struct uw_out *out, const char *text, size_t length)
{
	size_t index;

	for (index = 0; index < length; index++, out->length++) {
		if (out->length + 1 < out->size)
			out->buf[out->length] = text[index];
	}
}

void uw_put_text(struct uw_out *out, const char *text)
{
	uw_put(out, text, strlen(text));
}

static void pad(struct uw_out *out, size_t length, size_t width)
{
	for (; length < width; length++)
		uw_put(out, " ", 1);
}

static void put_padded(struct uw_out *out, const struct conversion *conversion, const char *text, size_t length)
{
	if (!conversion->is_left)
		pad(out, length, conversion->width);
	uw_put(out, text, length);
	if (conversion->is_left)
		pad(out, length, conversion->width);
}

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

/*
 * Returns how many of the letters belong to the conversion. A width pads the output, except for the
 * letters where it is the number of bytes to print.
 */
static size_t put_pointer(struct uw_out *out, const struct conversion *conversion, const char *letters,
			  const void *pointer)
{
	bool has_padding = conversion->has_width && letters[0] != 'b' && letters[0] != 'h' && isalpha((unsigned char)letters[0]);
	struct uw_out nothing = { NULL, 0, 0 };
	size_t used;

	if (!has_padding)
		return uw_put_pointer(out, conversion, letters, pointer);
	used = uw_put_pointer(&nothing, conversion, letters, pointer);
	if (used == 0)
		return uw_put_pointer(out, conversion, letters, pointer);
	if (!conversion->is_left)
		pad(out, nothing.length, conversion->width);
	uw_put_pointer(out, conversion, letters, pointer);
	if (conversion->is_left)
		pad(out, nothing.length, conversion->width);
	return used;
}

static size_t digits(struct conversion *conversion, const char **at)
{
	size_t number = 0;

	while (isdigit((unsigned char)**at)) {
		number = number * 10 + (size_t)(**at - '0');
		add(conversion, *(*at)++);
	}
	return number;
}

/*
 * Parses flags, width and precision. Leaves `*fmt` at the length modifier or the conversion letter.
 */
static void parse(struct conversion *conversion, const char **fmt, va_list *args)
{
	const char *at = *fmt;

	*conversion = (struct conversion){ .precision = SIZE_MAX };
	add(conversion, '%');
	while (*at && strchr("-+ #0", *at)) {
		conversion->is_left |= *at == '-';
		add(conversion, *at++);
	}
	if (*at == '*') {
		int width = va_arg(*args, int);

		conversion->is_left |= width < 0;
		conversion->width = width < 0 ? 0u - (unsigned int)width : (unsigned int)width;
		conversion->has_width = true;
		add_number(conversion, width);
		at++;
	} else if (isdigit((unsigned char)*at)) {
		conversion->has_width = true;
		conversion->width = digits(conversion, &at);
	}
	if (*at == '.') {
		add(conversion, *at++);
		if (*at == '*') {
			int precision = va_arg(*args, int);

			if (precision >= 0)
				conversion->precision = (size_t)precision;
			add_number(conversion, precision);
			at++;
		} else {
			conversion->precision = digits(conversion, &at);
		}
	}
	*fmt = at;
}

enum size { SIZE_CHAR, SIZE_SHORT, SIZE_INT, SIZE_LONG, SIZE_LONG_LONG, SIZE_SIZE, SIZE_PTRDIFF, SIZE_MAX_INT };

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
	case 'j':
		size = SIZE_MAX_INT;
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

static void put_integer(struct uw_out *out, struct conversion *conversion, enum size size, char letter, va_list *args)
{
	bool is_signed = letter == 'd' || letter == 'i';
	char spec[40], text[128];
	long long value;

	switch (size) {
	case SIZE_LONG:
		value = is_signed ? va_arg(*args, long) : (long long)va_arg(*args, unsigned long);
		break;
	case SIZE_MAX_INT:
		value = (long long)va_arg(*args, intmax_t);
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
	uw_put_text(out, text);
}

/* The kernel has no floating-point formats, but programs use them. */
static void put_float(struct uw_out *out, const struct conversion *conversion, enum size size, char letter,
		      va_list *args)
{
	char spec[40], text[512];

	if (size == SIZE_LONG_LONG) {
		snprintf(spec, sizeof(spec), "%sL%c", conversion->spec, letter);
		snprintf(text, sizeof(text), spec, va_arg(*args, long double));
	} else {
		snprintf(spec, sizeof(spec), "%s%c", conversion->spec, letter);
		snprintf(text, sizeof(text), spec, va_arg(*args, double));
	}
	uw_put_text(out, text);
}

static void put_string(struct uw_out *out, const struct conversion *conversion, const char *string)
{
	if (!string)
		string = "(null)";
	put_padded(out, conversion, string, strnlen(string, conversion->precision));
}

int uw_kernel_vsnprintf(char *buf, size_t size, const char *fmt, va_list given)
{
	struct uw_out out = { buf, size, 0 };
	struct conversion conversion;
	va_list args;

	va_copy(args, given);
	while (*fmt) {
		size_t plain = strcspn(fmt, "%");
		enum size length;

		uw_put(&out, fmt, plain);
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
			uw_put(&out, "%", 1);
			break;
		case 'c': {
			char c = (char)va_arg(args, int);

			put_padded(&out, &conversion, &c, 1);
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
		case 'a':
		case 'A':
		case 'e':
		case 'E':
		case 'f':
		case 'F':
		case 'g':
		case 'G':
			put_float(&out, &conversion, length, *fmt, &args);
			break;
		default:
			uw_put(&out, fmt, 1);
		}
		fmt++;
	}
	va_end(args);
	if (size > 0)
		buf[out.length < size ? out.length : size - 1] = '\0';
	return (int)out.length;
}

/* -------------------------------------------------------------------------------- public functions */

int uw_kernel_snprintf(char *buf, size_t size, const char *fmt, ...)
{
	va_list args;
	int length;

	va_start(args, fmt);
	length = uw_kernel_vsnprintf(buf, size, fmt, args);
	va_end(args);
	return length;
}

int uw_kernel_sprintf(char *buf, const char *fmt, ...)
{
	va_list args;
	int length;

	va_start(args, fmt);
	length = uw_kernel_vsnprintf(buf, INT_MAX, fmt, args);
	va_end(args);
	return length;
}

int uw_kernel_vscnprintf(char *buf, size_t size, const char *fmt, va_list args)
{
	int length = uw_kernel_vsnprintf(buf, size, fmt, args);

	if (size == 0)
		return 0;
	return length < (int)size ? length : (int)size - 1;
}

int sysfs_emit(char *buf, const char *fmt, ...)
{
	va_list args;
	int length;

	va_start(args, fmt);
	length = uw_kernel_vscnprintf(buf, PAGE_SIZE, fmt, args);
	va_end(args);
	return length;
}

int sysfs_emit_at(char *buf, int at, const char *fmt, ...)
{
	va_list args;
	int length;

	if (at < 0 || at >= (int)PAGE_SIZE)
		return 0;
	va_start(args, fmt);
	length = uw_kernel_vscnprintf(buf + at, PAGE_SIZE - (size_t)at, fmt, args);
	va_end(args);
	return length;
}

int scnprintf(char *buf, size_t size, const char *fmt, ...)
{
	va_list args;
	int length;

	va_start(args, fmt);
	length = uw_kernel_vscnprintf(buf, size, fmt, args);
	va_end(args);
	return length;
}
