/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The C library's header, for programs that include it behind linux/string.h, whose macros must not
 * change its declarations.
 */
#pragma GCC system_header
#pragma push_macro("strlcpy")
#pragma push_macro("strlcat")
#undef strlcpy
#undef strlcat
#include_next <string.h>
#pragma pop_macro("strlcat")
#pragma pop_macro("strlcpy")
