/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Names that code instrumented by a recent LLVM calls, and the thread sanitizer's runtime of an older compiler does not
 * have. That runtime intercepts the plain functions, which is the same. Compiled without instrumentation.
 */
#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int value, size_t size);

__attribute__((weak)) void *__tsan_memcpy(void *to, const void *from, size_t size)
{
	return memcpy(to, from, size);
}

__attribute__((weak)) void *__tsan_memmove(void *to, const void *from, size_t size)
{
	return memmove(to, from, size);
}

__attribute__((weak)) void *__tsan_memset(void *to, int value, size_t size)
{
	return memset(to, value, size);
}

/*
 * Rust's own library is not instrumented, so what its locks order is not seen inside ours. What happens there is
 * left to the models (ci/loom.sh); races in the callers' C, on the library's threads too, are reported.
 */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
	/*
	 * By the file, by the mangled name where nothing is known of the file, and by the names above, which only Rust's
	 * compiler calls: gcc calls the plain functions. What Rust's code frees has the runtime's own free() on top.
	 */
	return "race_top:.rs$\n"
	       "race_top:^_R\n"
	       "race_top:^__tsan_mem\n"
	       "race:library/alloc/src/alloc.rs\n";
}
