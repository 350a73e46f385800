/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A text that grows, and what is between % and a letter. */
#ifndef UWORK_KERNEL_FORMAT_H
#define UWORK_KERNEL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

struct uw_out {
	char *buf;
	size_t size;
	/* Of all that was put there, whether it had room or not. */
	size_t length;
};

void uw_put(struct uw_out *out, const char *text, size_t length);
void uw_put_text(struct uw_out *out, const char *text);

struct conversion {
	/* "%-08" and so on, up to its letter. */
	char spec[32];
	size_t length;
	size_t width;
	bool has_width;
	bool is_left;
	/* SIZE_MAX: none. */
	size_t precision;
};

/* What the letters behind %p say; returns how many of them there are. */
size_t uw_put_pointer(struct uw_out *out, const struct conversion *conversion, const char *letters,
		      const void *pointer);

#endif
