/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The version of the kernel whose interface these headers follow. */
#ifndef UWORK_KERNEL_LINUX_VERSION_H
#define UWORK_KERNEL_LINUX_VERSION_H

#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + ((c) > 255 ? 255 : (c)))
#define LINUX_VERSION_MAJOR 6
#define LINUX_VERSION_PATCHLEVEL 18
#define LINUX_VERSION_SUBLEVEL 0
#define LINUX_VERSION_CODE KERNEL_VERSION(LINUX_VERSION_MAJOR, LINUX_VERSION_PATCHLEVEL, LINUX_VERSION_SUBLEVEL)

#endif
