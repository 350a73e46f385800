#!/usr/bin/env bash
# The test of uwork-bridge.h against a built library, with a redis-server of its own. Argument: the folder of
# libuwork-bridge and libuwork. What needs redis-server is left out where that is missing.
set -euo pipefail
cd "$(dirname "$0")"
source ../../capi/tests/harness.sh

library=$1
headers=(-I../include)

# Each header alone, with each compiler and language.
printf '#include <uwork-bridge.h>\nextern int nothing;\n' | tee "$out/alone.c" >"$out/alone.cpp"
for compiler in "${compilers[@]}"; do
    "$compiler" -std=c11 "${strict[@]}" "${includes[@]}" "${headers[@]}" -fsyntax-only "$out/alone.c"
    "$(plus_of "$compiler")" -std=c++17 "${strict[@]}" -Wshadow "${includes[@]}" "${headers[@]}" -fsyntax-only "$out/alone.cpp"
done
say headers "uwork-bridge.h, alone, as C11 and C++17, with ${compilers[*]}: ok"

[ -e "$library/libuwork.so" ] || { say symbols "FAILED: no libuwork.so in $library to compare with"; exit 1; }
# The default library has nothing of the bridge, and this one has all functions of both headers.
of_library() { nm --dynamic --defined-only --format=posix "$1" | sed -n 's/^\(uw_[a-z0-9_]*\)@@.*/\1/p' | sort -u; }
of_header() { sed 's|/\*.*\*/||; /\/\*/,/\*\//d' "$1" | grep -o '\buw_[a-z0-9_]*(' | tr -d '(' | grep -v '^uw_to_' | sort -u; }
diff <(of_header ../include/uwork-bridge.h) <(of_library "$library/libuwork-bridge.so" | grep '^uw_bridge_') ||
    { say symbols "FAILED: uwork-bridge.h (<) and libuwork-bridge.so (>) have different functions"; exit 1; }
of_header "$capi/include/uwork.h" | comm -23 - <(of_library "$library/libuwork-bridge.so") | grep . &&
    { say symbols "FAILED: libuwork-bridge.so lacks these functions of uwork.h"; exit 1; }
! of_library "$library/libuwork.so" | grep '^uw_bridge_' ||
    { say symbols "FAILED: libuwork.so has these functions of the bridge"; exit 1; }
for name in $(of_header ../include/uwork-bridge.h); do
    grep -q "\.Fn \"\?$name\b\|\.Fo $name\b" ../man/*.3 || { say symbols "FAILED: $name is in no manual page"; exit 1; }
done
say symbols "the functions of uwork-bridge.h and uwork.h: ok"

if ! command -v redis-server >/dev/null; then
    [ -z "${CI:-}" ] || { say jobs "FAILED: CI has redis-server (ci/deps.sh)"; exit 1; }
    say jobs "left out: redis-server is not installed (ci/deps.sh)"
    exit 0
fi
source ./redis.sh
for cc in "${compilers[@]}"; do
    for how in shared static; do
        libs=(-L"$library" -luwork-bridge -Wl,-rpath,"$library")
        [ "$how" = shared ] || libs=("$library/libuwork-bridge.a" -lgcc_s -lpthread -lm -ldl)
        link "jobs-$how" c/jobs.c -std=gnu11 -I"$capi/tests/c" "${headers[@]}"
        start_redis
        run jobs "$out/jobs-$how" "$redis_url"
        stop_redis
    done
done
say jobs "handlers and producers with ${compilers[*]}, shared and static: ok"
