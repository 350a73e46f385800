#!/usr/bin/env bash
# The C tests against a built library. Arguments: the folder of the library, and the parts to run:
# plain, debug, address, thread, bad-input, headers, own, modules.
set -euo pipefail
cd "$(dirname "$0")"

library=$1
shift
include=../include
strict=(-Wall -Wextra -Wpedantic -Wconversion -Werror)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

cpus=$(nproc)
compilers=(gcc)
# The C++ compiler that belongs to a C compiler.
plus_of() {
    local plus=${1/gcc/g++}
    echo "${plus/clang/clang++}"
}
! command -v clang >/dev/null || compilers+=(clang)

say() { printf '  %-12s %s\n' "$1" "$2"; }

# run NAME COMMAND...: runs a command, and shows its output if it fails.
run() {
    local name=$1
    shift
    if ! timeout 300 "$@" >"$out/log" 2>&1; then
        say "$name" "FAILED: $*"
        tail -n 60 "$out/log"
        exit 1
    fi
}

# link NAME SOURCE FLAGS...: builds a test with the library; with the static one where the library
# is instrumented.
link() {
    local name=$1 source=$2
    shift 2
    "$cc" -O1 -g "${strict[@]}" -I$include -I$include/uwork/kernel "$@" -o "$out/$name" "$source" "${libs[@]}"
}

# start_link NAME SOURCE FLAGS...: the same in the background, one job for each CPU.
start_link() {
    while [ "$(jobs -rp | wc -l)" -ge "$cpus" ]; do
        wait -n || exit 1
    done
    link "$@" &
}

# Waits for the background jobs.
finish_links() {
    while [ -n "$(jobs -p)" ]; do
        wait -n || exit 1
    done
}
shared=(-L"$library" -luwork -Wl,-rpath,"$library")
static=("$library/libuwork.a" -lgcc_s -lpthread -lm -ldl)

contracts() {
    local how=$1 rounds=$2 test name mode plus started=$SECONDS
    shift 2
    plus=$(plus_of "$cc")
    local items=(items queues functions ending choices forks read_side task) kernel=()
    for test in kernel/*.c; do
        name=$(basename "$test" .c)
        case "$name" in pwlocks | pwforks) continue ;; esac
        # The thread sanitizer does not model fences.
        [ "$how $name" = "thread waiting" ] || kernel+=("$name")
    done
    for test in contract/*.c; do
        start_link "contract-$(basename "$test" .c)" "$test" -std=c11 "$@"
    done
    for test in "${items[@]}"; do
        start_link "c-$test" "c/$test.c" -std=gnu11 "$@"
    done
    cc=$plus start_link raii c/raii.cpp -std=c++17 -Wshadow "$@"
    cc=$plus start_link raii_percpu c/raii_percpu.cpp -std=c++17 -Wshadow "$@"
    for test in "${kernel[@]}" pwlocks pwforks; do
        start_link "kernel-$test" "kernel/$test.c" -std=gnu11 "$@"
    done
    start_link percpu c/percpu.c -std=gnu11 "$@"
    finish_links

    for test in contract/*.c; do
        run "$how" "$out/contract-$(basename "$test" .c)" rounds="$rounds"
    done
    for test in "${items[@]}"; do
        run "$how" "$out/c-$test"
    done
    run "$how" "$out/raii"
    for test in "${kernel[@]}"; do
        local arguments=()
        [ "$test" != environment ] ||
            arguments=(numbers=1,0x2,-3 "text=some words" flag large=0x10000000000)
        [ "$test" != values ] || arguments=(level=5 count=0x10 called=-7 names=a,b quiet)
        run "$how" "$out/kernel-$test" "${arguments[@]}"
    done
    for mode in $modes; do
        # The thread sanitizer does not see the order that locks of Rust's standard library create,
        # for example a cache's depot.
        [ "$how" = thread ] ||
            run "$how" env ASAN_OPTIONS=allocator_may_return_null=1 UWORK_PWLOCKS="$mode" "$out/percpu"
        run "$how" env UWORK_PWLOCKS="$mode" "$out/raii_percpu"
        run "$how" env UWORK_PWLOCKS="$mode" "$out/kernel-pwlocks" rounds="$rounds"
        # For the same reason as kernel/forks.c.
        case "$how" in plain) run "$how" env UWORK_PWLOCKS="$mode" "$out/kernel-pwforks" ;; esac
    done
    say "$how" "$(ls contract/*.c | wc -l) contracts, the API, task work, the environment and per-CPU data (modes $modes) with $cc: ok ($((SECONDS - started)) s)"
}

# Each header alone, with each compiler and language.
headers() {
    local header count=0
    for compiler in "${compilers[@]}"; do
        local plus
        plus=$(plus_of "$compiler")
        for header in uwork.h $(cd $include/uwork/kernel && find linux asm -name '*.h'); do
            printf '#include <%s>\nextern int nothing;\n' "$header" >"$out/alone.c"
            cp "$out/alone.c" "$out/alone.cpp"
            "$compiler" -std=c11 "${strict[@]}" -I$include -I$include/uwork/kernel -fsyntax-only "$out/alone.c"
            "$plus" -std=c++17 "${strict[@]}" -I$include -I$include/uwork/kernel -fsyntax-only "$out/alone.cpp"
            [ "$header" != uwork.h ] ||
                "$plus" -std=c++17 "${strict[@]}" -Wshadow -I$include -fsyntax-only "$out/alone.cpp"
            # The manual page must list it.
            local name=${header##*/}
            [ "$header" = uwork.h ] || grep -q "\b${name%.h}\b" ../man/uwork-kernel.7 || { say headers "$header is in no manual page"; exit 1; }
            count=$((count + 1))
        done
        echo '#include <uwork.hpp>' >"$out/alone.cpp"
        "$plus" -std=c++17 "${strict[@]}" -Wshadow -I$include -fsyntax-only "$out/alone.cpp"
    done
    # The compiler checks formats, and accepts the kernel's own.
    local call
    for call in 'pr_info("%s\n", 3)' 'pr_warn("%d\n")' 'printk("%d\n", "x")' 'alloc_workqueue("%s", 0, 0, 3)' \
        'kthread_run(f, NULL, "%s", 4)' 'WARN(1, "%s", 5)'; do
        printf '#include <linux/module.h>\n#include <linux/kthread.h>\nint f(void *d);\nint f(void *d) { (void)d; %s; return 0; }\n' \
            "${call//\\/\\\\}" >"$out/format.c"
        for compiler in "${compilers[@]}"; do
            if "$compiler" -std=gnu11 -Wall -Werror=format -I$include -I$include/uwork/kernel -fsyntax-only "$out/format.c" 2>"$out/log" ||
                ! grep -q 'format' "$out/log"; then
                say headers "FAILED: $compiler takes $call"
                exit 1
            fi
        done
    done
    say headers "$count, alone, as C11 and C++17, with ${compilers[*]}: ok"
}

# Programs that have kernel headers of their own include workqueue.h and timer.h: from the library's
# folder behind theirs, by path, and as copies.
own() {
    local how program count=0
    mkdir -p "$out/copy/linux"
    cp $include/uwork/kernel/linux/{workqueue,timer}.h "$out/copy/linux"
    for cc in "${compilers[@]}"; do
        for program in folder compat late; do
            for how in "-I$include/uwork/kernel" -DBY_PATH "-I$out/copy"; do
                "$cc" -std=gnu11 -O1 "${strict[@]}" -Wno-unused-function -Iown/folder/$([ $program = folder ] || echo none) \
                    -I$include "$how" -o "$out/own" own/$program.c "${libs[@]}"
                run "own $program $how" "$out/own"
                count=$((count + 1))
            done
        done
    done
    say own "$count programs with kernel headers of their own: ok"
}

# Modules in the kernel's style, by the headers that they include: they compile unchanged, and run.
modules() {
    local module standard plus count=0
    for cc in "${compilers[@]}"; do
        for module in kernel/modules/*.c; do
            for standard in gnu11 c11; do
                "$cc" -std=$standard -O1 -Wall -Wextra -Werror -I$include -I$include/uwork/kernel -o "$out/module" "$module" \
                    "${libs[@]}"
            done
            run modules "$out/module"
            count=$((count + 1))
        done
        plus=${cc/gcc/g++}
        plus=${plus/clang/clang++}
        "$plus" -std=c++17 -O1 "${strict[@]}" -I$include -I$include/uwork/kernel -o "$out/module" kernel/language.cpp "${libs[@]}"
        run modules "$out/module"
    done
    say modules "$count: ok"
}

# Each case returns an error; in the debug mode it ends the process with the listed message.
bad_input() {
    link bad_input c/bad_input.c -std=gnu11
    local name only_debug words status count=0
    while IFS='|' read -r name only_debug words; do
        if [ "$only_debug" = 0 ]; then
            run bad-input "$out/bad_input" "$name"
        fi
        status=0
        # Redirected, because the shell reports the signal.
        { UWORK_DEBUG=objects timeout 30 "$out/bad_input" "$name" >"$out/log" 2>&1; } 2>/dev/null || status=$?
        # 134: ended by SIGABRT.
        if [ "$status" != 134 ] || ! grep -qF -e "$words" "$out/log"; then
            say bad-input "FAILED: UWORK_DEBUG=objects $name ended with $status, not with 134 and \"$words\""
            tail -n 20 "$out/log"
            exit 1
        fi
        count=$((count + 1))
    done < <("$out/bad_input")
    # An unknown word in the variable does not enable the mode.
    UWORK_DEBUG=object run bad-input "$out/bad_input" null_queue
    grep -qF 'UWORK_DEBUG: "object" is ignored; the only allowed value is objects' "$out/log" || {
        say bad-input "FAILED: UWORK_DEBUG=object is ignored without a word"
        exit 1
    }
    say bad-input "$count cases: ok"
}

for what in "$@"; do
    modes=${UWORK_PWLOCKS:-0 1 2}
    libs=("${shared[@]}")
    cc=gcc
    case $what in
        headers) headers ;;
        plain)
            for cc in "${compilers[@]}"; do
                contracts plain 200
            done
            ;;
        debug)
            export UWORK_DEBUG=objects
            contracts debug 50
            unset UWORK_DEBUG
            ;;
        address)
            libs=("${static[@]}")
            contracts address 50 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
            ;;
        thread)
            gcc -O1 -ffreestanding -fno-tree-loop-distribute-patterns -c -o "$out/names.o" tsan_names.c
            # The sanitizer does not see locks that are taken in a restartable sequence.
            modes=1
            libs=("$out/names.o" "${static[@]}")
            export TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 history_size=7 ${TSAN_OPTIONS:-}"
            link race c/race.c -std=gnu11 -fsanitize=thread
            if timeout 300 "$out/race" >"$out/log" 2>&1 || ! grep -q 'data race .*write_on_worker\|data race .*race.c' "$out/log"; then
                # Without this report the sanitizer's silence about the other tests means nothing.
                say thread "FAILED: a race on purpose is not reported"
                tail -n 20 "$out/log"
                exit 1
            fi
            contracts thread 50 -fsanitize=thread
            ;;
        bad-input) bad_input ;;
        own) own ;;
        modules) modules ;;
        *)
            echo "no such part: $what"
            exit 2
            ;;
    esac
done
