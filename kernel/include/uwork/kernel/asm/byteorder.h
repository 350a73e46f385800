/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Byte orders. Includes the system's header of the same name. */
#ifndef UWORK_KERNEL_ASM_BYTEORDER_H
#define UWORK_KERNEL_ASM_BYTEORDER_H

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <asm/byteorder.h>

#define cpu_to_le16(x) __cpu_to_le16(x)
#define cpu_to_le32(x) __cpu_to_le32(x)
#define cpu_to_le64(x) __cpu_to_le64(x)
#define cpu_to_be16(x) __cpu_to_be16(x)
#define cpu_to_be32(x) __cpu_to_be32(x)
#define cpu_to_be64(x) __cpu_to_be64(x)
#define le16_to_cpu(x) __le16_to_cpu(x)
#define le32_to_cpu(x) __le32_to_cpu(x)
#define le64_to_cpu(x) __le64_to_cpu(x)
#define be16_to_cpu(x) __be16_to_cpu(x)
#define be32_to_cpu(x) __be32_to_cpu(x)
#define be64_to_cpu(x) __be64_to_cpu(x)

#define swab16(x) __swab16(x)
#define swab32(x) __swab32(x)
#define swab64(x) __swab64(x)
#define cpu_to_le16p(p) __cpu_to_le16(*(p))
#define cpu_to_le32p(p) __cpu_to_le32(*(p))
#define cpu_to_le64p(p) __cpu_to_le64(*(p))
#define cpu_to_be16p(p) __cpu_to_be16(*(p))
#define cpu_to_be32p(p) __cpu_to_be32(*(p))
#define cpu_to_be64p(p) __cpu_to_be64(*(p))
#define le16_to_cpup(p) __le16_to_cpu(*(p))
#define le32_to_cpup(p) __le32_to_cpu(*(p))
#define le64_to_cpup(p) __le64_to_cpu(*(p))
#define be16_to_cpup(p) __be16_to_cpu(*(p))
#define be32_to_cpup(p) __be32_to_cpu(*(p))
#define be64_to_cpup(p) __be64_to_cpu(*(p))
#define le16_to_cpus(p) ((void)(*(p) = __le16_to_cpu(*(p))))
#define le32_to_cpus(p) ((void)(*(p) = __le32_to_cpu(*(p))))
#define le64_to_cpus(p) ((void)(*(p) = __le64_to_cpu(*(p))))
#define be16_to_cpus(p) ((void)(*(p) = __be16_to_cpu(*(p))))
#define be32_to_cpus(p) ((void)(*(p) = __be32_to_cpu(*(p))))
#define be64_to_cpus(p) ((void)(*(p) = __be64_to_cpu(*(p))))
#define le16_add_cpu(p, n) ((void)(*(p) = __cpu_to_le16((__u16)(__le16_to_cpu(*(p)) + (n)))))
#define le32_add_cpu(p, n) ((void)(*(p) = __cpu_to_le32(__le32_to_cpu(*(p)) + (n))))
#define le64_add_cpu(p, n) ((void)(*(p) = __cpu_to_le64(__le64_to_cpu(*(p)) + (n))))
#define be16_add_cpu(p, n) ((void)(*(p) = __cpu_to_be16((__u16)(__be16_to_cpu(*(p)) + (n)))))
#define be32_add_cpu(p, n) ((void)(*(p) = __cpu_to_be32(__be32_to_cpu(*(p)) + (n))))
#define be64_add_cpu(p, n) ((void)(*(p) = __cpu_to_be64(__be64_to_cpu(*(p)) + (n))))

#endif
