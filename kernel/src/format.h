/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An output buffer, and the parsed part of a conversion between % and its letter. */
#ifndef UWORK_KERNEL_FORMAT_H
#define UWORK_KERNEL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

struct uw_out {
	char *buf;
	size_t size;
	/* The length of everything that was put, including what did not fit. */
	size_t length;
};

void uw_put(struct uw_out *out, const char *text, size_t length);
void uw_put_text(struct uw_out *out, const char *text);

struct conversion {
	/* "%-08" and so on, up to the letter. */
	char spec[32];
	size_t length;
	size_t width;
	bool has_width;
	bool is_left;
	/* SIZE_MAX if there is none. */
	size_t precision;
};

/* Formats by the letters behind %p. Returns how many of them belong to the conversion. */
size_t uw_put_pointer(struct uw_out *out, const struct conversion *conversion, const char *letters,
		      const void *pointer);

#endif
