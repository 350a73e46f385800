/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Files of the system that are read at once. */
#ifndef UWORK_KERNEL_READ_FILE_H
#define UWORK_KERNEL_READ_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Reads at most `size` - 1 bytes, and ends them with a zero byte. Returns false if the file cannot be read. Call it
 * without any lock that a fork handler takes: a fork waits until the file is closed.
 */
bool uw_kernel_read_file(const char *path, char *text, size_t size);

#endif
