/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions that code instrumented by a recent LLVM calls, and that the thread sanitizer's runtime
 * of an older compiler lacks. They call the plain functions, which that runtime intercepts, so the
 * effect is the same. This file is compiled without instrumentation.
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
 * Rust's standard library is not instrumented, so the sanitizer does not see the order that its
 * locks create inside this library. Those parts are checked by the models (ci/loom.sh). Races in
 * the callers' C code are reported, also on the library's threads.
 */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
	/*
	 * Suppresses by file, by mangled name where the file is unknown, and by the names above,
	 * which only Rust's compiler uses: gcc calls the plain functions. Memory freed by Rust code
	 * has the runtime's own free() at the top of the stack.
	 */
	return "race_top:.rs$\n"
	       "race_top:^_R\n"
	       "race_top:^__tsan_mem\n"
	       "race:library/alloc/src/alloc.rs\n";
}
