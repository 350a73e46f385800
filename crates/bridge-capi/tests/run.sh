#!/usr/bin/env bash
# The test of uwork-bridge.h against a built library, with a redis-server of its own. Argument: the folder of
# libuwork-bridge and libuwork. What needs redis-server is left out where that is missing.
set -euo pipefail
cd "$(dirname "$0")"
suite=bridge-capi
source ../../capi/tests/harness.sh

headers=(-I../include)

# Each header alone, with each compiler and language.
headers_part() {
    local compiler
    printf '#include <uwork-bridge.h>\nextern int nothing;\n' | tee "$out/alone.c" >"$out/alone.cpp"
    for compiler in "${compilers[@]}"; do
        "$compiler" -std=c11 "${strict[@]}" "${includes[@]}" "${headers[@]}" -fsyntax-only "$out/alone.c"
        "$(plus_of "$compiler")" -std=c++17 "${strict[@]}" -Wshadow "${includes[@]}" "${headers[@]}" -fsyntax-only "$out/alone.cpp"
    done
    say headers "uwork-bridge.h, alone, as C11 and C++17, with ${compilers[*]}: ok"
}

of_library() { nm --dynamic --defined-only --format=posix "$1" | sed -n 's/^\(uw_[a-z0-9_]*\)@@.*/\1/p' | sort -u; }
of_header() { sed 's|/\*.*\*/||; /\/\*/,/\*\//d' "$1" | grep -o '\buw_[a-z0-9_]*(' | tr -d '(' | grep -v '^uw_to_' | sort -u; }

# The default library has nothing of the bridge, and this one has all functions of both headers.
symbols_part() {
    local name with=$library/libuwork-bridge.so default=$library/libuwork.so
    [ -e "$default" ] || { echo "no libuwork.so in $library to compare with"; return 1; }
    diff <(of_header ../include/uwork-bridge.h) <(of_library "$with" | grep '^uw_bridge_') >"$out/log" ||
        failed bridge-capi/symbols "uwork-bridge.h (<) and libuwork-bridge.so (>) have different functions" "$out/log"
    ! of_header "$capi/include/uwork.h" | comm -23 - <(of_library "$with") | grep . >"$out/log" ||
        failed bridge-capi/symbols "libuwork-bridge.so lacks these functions of uwork.h" "$out/log"
    ! of_library "$default" | grep '^uw_bridge_' >"$out/log" ||
        failed bridge-capi/symbols "libuwork.so has these functions of the bridge" "$out/log"
    for name in $(of_header ../include/uwork-bridge.h); do
        grep -q "\.Fn \"\?$name\b\|\.Fo $name\b" ../man/*.3 || failed bridge-capi/symbols "$name is in no manual page"
    done
    say symbols "the functions of uwork-bridge.h and uwork.h: ran"
}

# with_server PROGRAM OPTION...: runs it with a new server.
with_server() {
    local status=0 program=$1
    shift
    start_redis "$@"
    "$guard" "$program" "$redis_url" || status=$?
    stop_redis
    return "$status"
}

# is_living PID: neither gone nor a zombie.
is_living() { [ -n "$(tr -d '\0' 2>/dev/null <"/proc/$1/cmdline")" ]; }

# The server of a killed script is killed. The guard ends a wait that hangs.
a_killed_script_leaves_no_server() {
    TMPDIR=$out bash -c 'source ./redis.sh && start_redis && echo "$redis_pid" >"$1/pid" && kill -KILL $$' bash "$out" || true
    [ -s "$out/pid" ] || return 1
    export -f is_living
    "$guard" bash -c 'while is_living "$1"; do sleep 0.1; done' bash "$(cat "$out/pid")"
}

jobs_part() {
    local how program options
    if ! command -v redis-server >/dev/null; then
        [ -z "${CI:-}" ] || [[ ",${UWORK_LEFT_OUT:-}," == *,redis-server,* ]] ||
            { echo "redis-server is not installed, and CI is set: run ci/deps.sh"; return 1; }
        say jobs "left out: redis-server is not installed (ci/deps.sh)"
        return
    fi
    source ./redis.sh
    [ "${#dies_with_shell[@]}" = 0 ] || run jobs/killed-script a_killed_script_leaves_no_server
    for cc in "${compilers[@]}"; do
        for how in shared static; do
            libs=(-L"$library" -luwork-bridge -Wl,-rpath,"$library")
            [ "$how" = shared ] || libs=("$library/libuwork-bridge.a" -lgcc_s -lpthread -lm -ldl)
            for program in jobs first_calls functions; do
                link "$program-$how" "c/$program.c" -std=gnu11 -I"$capi/tests/c" "${headers[@]}"
                # A consumer reports a server without an append-only file, which is a part of jobs.c.
                options=(--appendonly yes)
                [ "$program" != jobs ] || options=()
                run "jobs/$program-$how-$cc" with_server "$out/$program-$how" "${options[@]}"
            done
        done
    done
    say jobs "handlers, producers and forked children with ${compilers[*]}, shared and static: ran"
}

run_parts "$1" headers symbols jobs
