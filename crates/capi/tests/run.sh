#!/usr/bin/env bash
# The tests of uwork.h and uwork.hpp against a built library. Arguments: the folder of the library, and the parts to
# run: headers, plain, debug, address, thread, bad-input, porting, valgrind.
set -euo pipefail
cd "$(dirname "$0")"
suite=capi
source ./harness.sh

programs() {
    local how=$1 test mode started=$SECONDS
    shift 2
    local items=(items queues functions shutdown choices forks read_side task threads states
        destructors)
    # No matter of the compiler, and long.
    case $how in plain-*) ;; *) items+=(memory) ;; esac
    for test in "${items[@]}"; do
        start_link "$how/$test" "c/$test.c" -std=gnu11 "$@"
    done
    cc=$(plus_of "$cc") start_link "$how/raii" c/raii.cpp -std=c++17 -Wshadow "$@"
    cc=$(plus_of "$cc") start_link "$how/raii_percpu" c/raii_percpu.cpp -std=c++17 -Wshadow "$@"
    start_link "$how/percpu" c/percpu.c -std=gnu11 "$@"
    start_link "$how/first_calls" c/first_calls.c -std=gnu11 "$@"
    # The sanitizers' library is a static one.
    case $how in
        plain* | debug)
            start_link "$how/constructor.so" c/constructor.c -std=gnu11 -DPLUGIN -shared -fPIC "$@"
            start_link "$how/constructor" c/constructor.c -std=gnu11 "$@"
            ;;
    esac
    finish_links

    for test in "${items[@]}" raii; do
        run "$how/$test" "$out/$test"
    done
    case $how in
        plain* | debug) run "$how/constructor" "$out/constructor" "$out/constructor.so" ;;
    esac
    for mode in $modes; do
        # The thread sanitizer does not see the order that locks of Rust's standard library create,
        # for example a cache's depot.
        [ "$how" = thread ] ||
            ASAN_OPTIONS=allocator_may_return_null=1 UWORK_PWLOCKS=$mode run "$how/percpu-$mode" "$out/percpu"
        UWORK_PWLOCKS=$mode run "$how/raii_percpu-$mode" "$out/raii_percpu"
        UWORK_PWLOCKS=$mode run "$how/first_calls-$mode" "$out/first_calls"
    done
    say "$how" "the API, task work and per-CPU data (modes $modes) with $cc: ran ($((SECONDS - started)) s)"
}

# Each header alone, with each compiler and language.
headers_part() {
    local compiler plus
    for compiler in "${compilers[@]}"; do
        plus=$(plus_of "$compiler")
        printf '#include <uwork.h>\nextern int nothing;\n' >"$out/alone.c"
        cp "$out/alone.c" "$out/alone.cpp"
        "$compiler" -std=c11 "${strict[@]}" -I"$capi/include" -fsyntax-only "$out/alone.c"
        "$plus" -std=c++17 "${strict[@]}" -Wshadow -I"$capi/include" -fsyntax-only "$out/alone.cpp"
        echo '#include <uwork.hpp>' >"$out/alone.cpp"
        "$plus" -std=c++17 "${strict[@]}" -Wshadow -I"$capi/include" -fsyntax-only "$out/alone.cpp"
    done
    say headers "uwork.h and uwork.hpp, alone, as C11 and C++17, with ${compilers[*]}: ok"
}

# The debug mode ends the process at a case, with a message that has these words.
aborts() {
    local status=0
    UWORK_DEBUG=objects "$guard" "$out/bad_input" "$1" || status=$?
    # 134: ended by SIGABRT.
    [ "$status" = 134 ] && grep -qF -e "$2" "$out/log" || {
        echo "UWORK_DEBUG=objects $1 ended with $status, not with 134 and \"$2\""
        return 1
    }
}

# An unknown word in the variable is reported, and does not enable the mode.
debug_mode_is_spelled_wrong() {
    UWORK_DEBUG=object "$guard" "$out/bad_input" null_queue
    grep -qF 'UWORK_DEBUG: "object" is ignored; the only allowed value is objects' "$out/log"
}

# Each case returns an error; in the debug mode it ends the process with the listed message.
bad_input_part() {
    link bad_input c/bad_input.c -std=gnu11
    local name only_debug words count=0
    while IFS='|' read -r name only_debug words; do
        [ "$only_debug" = 1 ] || run "bad-input/$name" "$out/bad_input" "$name"
        run "bad-input/$name-debug" aborts "$name" "$words"
        count=$((count + 1))
    done < <("$out/bad_input")
    run bad-input/wrong-word debug_mode_is_spelled_wrong
    say bad-input "$count cases: ran"
}

# The programs in the porting guide, and what its tables name. Each of uwork's names there is used by one of the guide's
# programs or by a test that checks what the table says.
porting_part() {
    local guide=$capi/../../docs/porting.md program name count=0
    awk -v out="$out" '/^```c$/ { file = out "/porting-" ++n ".c"; next } /^```/ { file = "" } file { print > file }' "$guide"
    for cc in "${compilers[@]}"; do
        for program in "$out"/porting-*.c c/porting.c c/porting_kernel.c; do
            name=$(basename "$program" .c)
            link_or_fail "porting/$name" "$program" -std=gnu11
            run "porting/$name" "$out/$name"
            count=$((count + 1))
        done
    done
    local wanted=$((7 * ${#compilers[@]}))
    [ "$count" = "$wanted" ] || failed capi/porting "$count programs instead of $wanted"
    for name in $(grep -o '\buw_[a-z_]*[a-z]\|\bUW_[A-Z_]*[A-Z]' "$guide" | sort -u); do
        grep -q "\b$name\b" "$out"/porting-*.c c/porting.c c/forks.c || failed capi/porting "no program uses $name"
    done
    # The right column of the kernel's table, and the row whose code must not compile.
    for name in $(sed -n '/^## Your own/,/^## A pthread pool/p' "$guide" | grep -o '`[a-z_]*_work[a-z_]*\|`WQ_[A-Z_]*' | tr -d '`' | sort -u); do
        grep -q "\b$name\b" "$out"/porting-1.c c/porting_kernel.c || failed capi/porting "no program uses $name"
    done
    sed 's/!work_pending(&held));/held.entry[0] == 0);/' c/porting_kernel.c >"$out/entry.c"
    if "$cc" -std=gnu11 "${includes[@]}" -fsyntax-only "$out/entry.c" 2>"$out/log" || ! grep -q 'work_pending(work)' "$out/log"; then
        failed capi/porting "work->entry compiles, or the compiler does not name work_pending()" "$out/log"
    fi
    grep -q "a bounded backlog, in $(wc -l <"$capi/../../examples/c/pool.h") lines" <(tr '\n' ' ' <"$guide") ||
        failed capi/porting "pool.h has another number of lines"
    say porting "$count programs, and the names in the tables: ran"
}

# memcheck, with the suppressions of the manual page: no error, and no leak of the library's.
valgrind_part() {
    if ! command -v valgrind >/dev/null; then
        echo "left out: valgrind is not installed"
        return
    fi
    local test
    sed -n '/suppressions: begin/,/suppressions: end/p' "$capi/man/uwork.7" | grep -v '^\.' >"$out/uwork.supp"
    for test in shutdown functions; do
        start_link "valgrind/$test" "c/$test.c" -std=gnu11
    done
    finish_links
    for test in shutdown functions; do
        run "valgrind/$test" env UWORK_BLOCKING=declared valgrind --quiet --leak-check=full --errors-for-leak-kinds=possible \
            --show-leak-kinds=possible --suppressions="$out/uwork.supp" --error-exitcode=9 "$out/$test"
    done
    say valgrind "memcheck and the suppressions of uwork(7): ran"
}

run_parts "$@"
