#!/usr/bin/env bash
# The main uses from a fresh checkout: builds the commands, runs the quick benchmark against other thread pools,
# checksums a real tree of this machine and verifies the sums.
set -euo pipefail
cd "$(dirname "$0")/.."

# All steps after the build together take at most 200 seconds.
readonly BENCH_SECONDS_MAX=110
readonly SUM_SECONDS_MAX=30
readonly VERIFY_SECONDS_MAX=30

started=$SECONDS
target=${CARGO_TARGET_DIR:-target}
uwork=$target/release/uwork
lab=$target/release/uwork-lab
sums=$target/tour.sha256
summary=()

# step NAME SECONDS_MAX COMMAND...: runs and times the command; 0 means no limit. Only the command writes to standard
# output, so that the caller can capture it.
step() {
    local name=$1 limit=$2 before status=0
    shift 2
    printf '\n== %s: %s\n' "$name" "$*" >&2
    before=$EPOCHREALTIME
    timeout --foreground "$limit" "$@" </dev/null || status=$?
    summary+=("$(awk -v name="$name" -v before="$before" -v after="$EPOCHREALTIME" \
        'BEGIN { printf "%-8s %7.2f s", name, after - before }')")
    [ "$status" != 0 ] || return 0
    [ "$status" != 124 ] || echo "$name was still running after $limit s" >&2
    echo "$name FAILED: exit code $status" >&2
    exit 1
}

for tree in /usr/include /usr/share/doc /usr/share; do
    [ ! -d "$tree" ] || break
done

step deps 0 ci/deps.sh
step build 0 cargo build --release --package uwork-cli --package uwork-lab
step bench "$BENCH_SECONDS_MAX" "$lab" bench workqueue --quick --rivals
step sum "$SUM_SECONDS_MAX" "$uwork" sum -a sha256 "$tree" >"$sums"
step verify "$VERIFY_SECONDS_MAX" "$uwork" sum -a sha256 -c --quiet "$sums"
if command -v sha256sum >/dev/null; then
    step check "$VERIFY_SECONDS_MAX" sha256sum -c --quiet "$sums"
fi

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
printf '%-8s %4d    s\n' all "$((SECONDS - started))"
printf '%s files of %s (%s) summed and verified; the sums are in %s\n' \
    "$(wc -l <"$sums")" "$tree" "$(du -shL "$tree" 2>/dev/null | cut -f 1)" "$sums"
