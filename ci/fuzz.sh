#!/usr/bin/env bash
# Searches for input that breaks a parser, guided by code coverage, for FUZZ_SECONDS each. Then tries
# each command that looks into processes beside a hostile process, for as much CPU time: no command
# may take more than two seconds, crash, or write what a terminal obeys. With the argument `hostile`
# it does only that. UWORK_HOSTILE_SEED repeats a seed. FUZZ_PROFILE=release has these commands as users
# have them; the default, dev, also finds overflows and violated assertions.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${FUZZ_SECONDS:-60}
hostile() {
    UWORK_HOSTILE_CPU_SECONDS="$seconds" cargo test --profile "${FUZZ_PROFILE:-dev}" --package uwork-cli --test command -- --exact --nocapture \
        hostile::each_command_ends_beside_an_adversary_and_writes_plain_text
}
if [ "${1:-}" = hostile ]; then
    hostile
    exit
fi

cd fuzz
target=${CARGO_TARGET_DIR:-../target}/fuzz
# The coverage instrumentation that the fuzzer uses. These flags are stable, because no sanitizer is enabled.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cdebug-assertions=on -Coverflow-checks=on -Ccodegen-units=1"
command -v c++ >/dev/null || { echo "a C++ compiler is missing: apt-get install -y g++"; exit 1; }
cargo build --release --locked --target-dir "$target" --target "$(rustc --print host-tuple)"

corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
mkdir "$corpus/resp" "$corpus/control"
printf '\x05*2\r\n$3\r\nGET\r\n$1\r\na\r\n' >"$corpus/resp/array"
printf '\x01SET a "b \\x00" '"'c'"'\r\n' >"$corpus/resp/inline"
printf '\x07*-1\r\n*1\r\n$0\r\n\r\n\r\nPING\r\n' >"$corpus/resp/nothing"
printf 'set workqueue/devices/fuzzed/cpumask 00000001' >"$corpus/control/set"
printf 'get module/parameters/watchdog_thresh' >"$corpus/control/get"
printf 'list devices//fuzzed' >"$corpus/control/list"
for name in resp control; do
    "$target/$(rustc --print host-tuple)/release/$name" -max_total_time="$seconds" -max_len=2048 \
        -print_final_stats=1 "$corpus/$name"
done
cd ..
unset RUSTFLAGS
hostile
