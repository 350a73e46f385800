#!/usr/bin/env bash
# The C tests against a built library. Arguments: the folder of the library, and what to run: plain, debug, address,
# thread, bad-input, headers.
set -euo pipefail
cd "$(dirname "$0")"

library=$1
shift
include=../include
strict=(-Wall -Wextra -Wpedantic -Wconversion -Werror)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

compilers=(gcc)
! command -v clang >/dev/null || compilers+=(clang)

say() { printf '  %-12s %s\n' "$1" "$2"; }

# run NAME COMMAND...: quiet, unless it fails.
run() {
    local name=$1
    shift
    if ! timeout 300 "$@" >"$out/log" 2>&1; then
        say "$name" "FAILED: $*"
        tail -n 60 "$out/log"
        exit 1
    fi
}

# link NAME SOURCE FLAGS...: a test with the library; with the static one where the library is instrumented.
link() {
    local name=$1 source=$2
    shift 2
    "$cc" -O1 -g "${strict[@]}" -I$include -I$include/uwork/kernel "$@" -o "$out/$name" "$source" "${libs[@]}"
}
shared=(-L"$library" -luwork -Wl,-rpath,"$library")
static=("$library/libuwork.a" -lgcc_s -lpthread -lm -ldl)

contracts() {
    local how=$1 rounds=$2 test started=$SECONDS
    shift 2
    for test in contract/*.c; do
        link contract "$test" -std=c11 "$@"
        run "$how" "$out/contract" rounds="$rounds"
    done
    link api c/api.c -std=gnu11 "$@"
    run "$how" "$out/api"
    link task c/task.c -std=gnu11 "$@"
    run "$how" "$out/task"
    link environment kernel/environment.c -std=gnu11 "$@"
    run "$how" "$out/environment" numbers=1,0x2,-3 "text=some words" flag large=0x10000000000
    say "$how" "$(ls contract/*.c | wc -l) contracts, the API, task work and the environment with $cc: ok ($((SECONDS - started)) s)"
}

# Each header alone, with each compiler and language.
headers() {
    local header count=0
    for compiler in "${compilers[@]}"; do
        local plus=${compiler/gcc/g++}
        plus=${plus/clang/clang++}
        for header in uwork.h $(cd $include/uwork/kernel && find linux -name '*.h'); do
            printf '#include <%s>\nextern int nothing;\n' "$header" >"$out/alone.c"
            cp "$out/alone.c" "$out/alone.cpp"
            "$compiler" -std=c11 "${strict[@]}" -I$include -I$include/uwork/kernel -fsyntax-only "$out/alone.c"
            "$plus" -std=c++17 "${strict[@]}" -I$include -I$include/uwork/kernel -fsyntax-only "$out/alone.cpp"
            count=$((count + 1))
        done
        echo '#include <uwork.hpp>' >"$out/alone.cpp"
        "$plus" -std=c++17 "${strict[@]}" -I$include -fsyntax-only "$out/alone.cpp"
    done
    # Two headers are enough for a program that has nothing else.
    mkdir -p "$out/two/linux"
    cp $include/uwork/kernel/*.h "$out/two"
    cp $include/uwork/kernel/linux/{workqueue,timer}.h "$out/two/linux"
    sed -i 's|"../../uwork.h"|<uwork.h>|' "$out"/two/*.h
    printf '#include <linux/workqueue.h>\nstruct work_struct w;\n' >"$out/alone.c"
    gcc -std=c11 "${strict[@]}" -I$include -I"$out/two" -fsyntax-only "$out/alone.c"
    say headers "$count, alone, as C11 and C++17, with ${compilers[*]}: ok"
}

# Each case is an error, and in the debug mode an end with the words that it lists.
bad_input() {
    link bad_input c/bad_input.c -std=gnu11
    local name only_debug words status count=0
    while IFS='|' read -r name only_debug words; do
        if [ "$only_debug" = 0 ]; then
            run bad-input "$out/bad_input" "$name"
        fi
        status=0
        # The shell would tell of each signal.
        { UWORK_DEBUG=objects timeout 30 "$out/bad_input" "$name" >"$out/log" 2>&1; } 2>/dev/null || status=$?
        # 134: ended by SIGABRT.
        if [ "$status" != 134 ] || ! grep -qF -e "$words" "$out/log"; then
            say bad-input "FAILED: UWORK_DEBUG=objects $name ended with $status, not with 134 and \"$words\""
            tail -n 20 "$out/log"
            exit 1
        fi
        count=$((count + 1))
    done < <("$out/bad_input")
    say bad-input "$count cases: ok"
}

for what in "$@"; do
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
            gcc -O1 -c -o "$out/names.o" tsan_names.c
            libs=("$out/names.o" "${static[@]}")
            TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 ${TSAN_OPTIONS:-}" contracts thread 50 -fsanitize=thread
            ;;
        bad-input) bad_input ;;
        *)
            echo "no such part: $what"
            exit 2
            ;;
    esac
done
