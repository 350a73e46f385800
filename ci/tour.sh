#!/usr/bin/env bash
# The main uses from a fresh checkout: builds the commands, checksums a real tree of this machine and verifies the sums,
# runs the quick benchmark against other thread pools. The last 12 lines are for a reader who sees only them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# All steps after the build together take at most 200 seconds.
readonly BENCH_SECONDS_MAX=110
readonly SUM_SECONDS_MAX=30
readonly VERIFY_SECONDS_MAX=30
# Where cargo's own bar is not drawn.
readonly PROGRESS_SECONDS=10

started=$SECONDS
target=${CARGO_TARGET_DIR:-target}
uwork=$target/tour/uwork
lab=$target/tour/uwork-lab
sums=$target/tour.sha256
# Without link-time optimization, and only the commands that run below (profile `tour` of Cargo.toml).
choices=("--package uwork-cli --no-default-features" "--manifest-path lab/Cargo.toml --package uwork-lab --no-default-features")
times=()

# step NAME SECONDS_MAX COMMAND...: runs and times the command; 0 means no limit. Only the command writes to standard
# output, so that the caller can capture it.
step() {
    local name=$1 limit=$2 before status=0
    shift 2
    printf '\n== %s: %s\n' "$name" "$*" >&2
    before=$EPOCHREALTIME
    if [ "$limit" = 0 ]; then
        "$@" </dev/null || status=$?
    else
        timeout --foreground "$limit" "$@" </dev/null || status=$?
    fi
    times+=("$(awk -v name="$name" -v before="$before" -v after="$EPOCHREALTIME" \
        'BEGIN { printf "%s %.1f s", name, after - before }')")
    [ "$status" != 0 ] || return 0
    [ "$status" != 124 ] || echo "$name was still running after $limit s" >&2
    echo "$name FAILED: exit code $status" >&2
    exit 1
}

# lines_of_progress CRATES: turns the lines of cargo, one for each crate, into a line every 10 seconds. Others pass.
lines_of_progress() {
    local crates=$1 begun=0 start=$SECONDS printed=$SECONDS line status
    while :; do
        status=0
        IFS= read -r -t "$PROGRESS_SECONDS" line || status=$?
        # Above 128: no line within the time. Otherwise the input has ended.
        [ "$status" = 0 ] || [ "$status" -gt 128 ] || break
        if [ "$status" = 0 ]; then
            case $line in
                *" Compiling "*) begun=$((begun + 1)) ;;
                *" Downloaded "*) ;;
                *) printf '%s\n' "$line" ;;
            esac
        fi
        if [ $((SECONDS - printed)) -ge "$PROGRESS_SECONDS" ]; then
            echo "  crate $begun of $crates, after $((SECONDS - start)) s"
            printed=$SECONDS
        fi
    done
}

# for_each_choice COMMAND...
for_each_choice() {
    local choice
    for choice in "${choices[@]}"; do
        # shellcheck disable=SC2086 # A list of arguments.
        CARGO_TARGET_DIR=$target "$@" $choice || return
    done
}

crates_of() { cargo tree --edges normal,build --prefix none --no-dedupe "$@" | sort -u; }

build() {
    local crates
    # Each workspace compiles the crates of the repository, and both share the others.
    crates=$(for_each_choice crates_of | awk '/ \(\// || !seen[$0]++' | wc -l)
    echo "$crates crates; with two CPUs this takes about 100 seconds"
    # On a terminal cargo draws a bar.
    if [ -t 2 ]; then
        for_each_choice cargo build --profile tour
    else
        for_each_choice cargo build --profile tour 2> >(lines_of_progress "$crates" >&2)
    fi
}

# closing: the last lines, behind the verdict of the benchmark. A test of the benchmark's command counts them.
closing() {
    printf '\nleft out of this first look: the other commands of uwork (make build), pools that are not written in Rust (make native),\n'
    printf 'link-time optimization (make bench: all benchmarks, over an hour). The README says what the figures mean.\n'
    printf 'uwork sum: %s files of %s (%s) in %s, verified %s\n' \
        "$(wc -l <"$sums")" "$tree" "$(du -shL "$tree" 2>/dev/null | cut -f 1)" "$sums" "$verified"
    printf -v all '%s, ' "${times[@]}"
    printf 'times: %sall %d s\n' "$all" "$((SECONDS - started))"
}

# A test has the functions alone.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0

for tree in /usr/include /usr/share/doc /usr/share; do
    [ ! -d "$tree" ] || break
done

step deps 0 ci/deps.sh --build
step build 0 build
step sum "$SUM_SECONDS_MAX" "$uwork" sum -a sha256 "$tree" >"$sums"
step verify "$VERIFY_SECONDS_MAX" "$uwork" sum -a sha256 -c --quiet "$sums"
verified="by uwork sum -c"
if command -v sha256sum >/dev/null; then
    step check "$VERIFY_SECONDS_MAX" sha256sum -c --quiet "$sums"
    verified+=" and sha256sum -c"
fi
step bench "$BENCH_SECONDS_MAX" "$lab" bench workqueue --quick --rivals
closing
