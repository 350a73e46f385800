/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Circular buffers of a power of two of bytes: one slot stays free. */
#ifndef UWORK_KERNEL_LINUX_CIRC_BUF_H
#define UWORK_KERNEL_LINUX_CIRC_BUF_H

struct circ_buf {
	char *buf;
	int head;
	int tail;
};

/* The bytes that can be read, and those that can be written. */
#define CIRC_CNT(head, tail, size) (((head) - (tail)) & ((size) - 1))
#define CIRC_SPACE(head, tail, size) CIRC_CNT((tail), ((head) + 1), (size))
/* The same, but only up to the end of the buffer's memory. */
#define CIRC_CNT_TO_END(head, tail, size) \
	__extension__({ \
		int uw_left = (int)(size) - (int)(tail); \
		int uw_used = (int)(((head) + uw_left) & ((size) - 1)); \
		uw_used < uw_left ? uw_used : uw_left; \
	})
#define CIRC_SPACE_TO_END(head, tail, size) \
	__extension__({ \
		int uw_left = (int)(size) - 1 - (int)(head); \
		int uw_free = (int)((uw_left + (tail)) & ((size) - 1)); \
		uw_free <= uw_left ? uw_free : uw_left + 1; \
	})

#endif
