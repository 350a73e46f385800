#!/usr/bin/env bash
# Looks for tests that fail by chance: runs every suite ROUNDS times in each of these kinds, without repeating a test that
# failed, and prints a table. Everything is built first. Ctrl-C prints the table so far, and leaves nothing running.
#
# usage: ci/flaky.sh [ROUNDS] [KIND...] [SUITE...]
#
#   ROUNDS  1 by default
#   KIND    busy2, busy6: beside two and six busy loops; pinned: on one CPU; nice: at niceness 19; threads1, threads2,
#           threads16: with this number of test threads (Rust's suites only); quiet: as it is. Without one, all but quiet
#   SUITE   rust, lab, doc, stress, loom, c, installed, address, thread (ci/suite.sh); without one, all
#
#   SUITE_TESTS  in the suites rust and lab, runs only the tests whose names contain this text
#
# ci/flaky.sh 20 busy2 is what every suite must pass.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

readonly KINDS="busy2 busy6 pinned nice threads1 threads2 threads16" SUITES="rust lab doc stress loom c installed address thread"
# A suite that takes longer hangs.
readonly SUITE_SECONDS_MAX=$((3 * 3600))

rounds=1 kinds=() suites=()
for word in "$@"; do
    case $word in
        *[!0-9]*)
            case " quiet $KINDS : $SUITES " in
                *" $word "*:*) kinds+=("$word") ;;
                *:*" $word "*) suites+=("$word") ;;
                *) echo "$word: allowed are a number of rounds, and quiet $KINDS $SUITES"; exit 2 ;;
            esac
            ;;
        *) rounds=$word ;;
    esac
done
# shellcheck disable=SC2206 # Lists of words.
[ "${#kinds[@]}" != 0 ] || kinds=($KINDS)
# shellcheck disable=SC2206
[ "${#suites[@]}" != 0 ] || suites=($SUITES)

# In CI no test may be left out, and on one CPU some are.
unset CI
export UWORK_NO_REPEAT=1 RUST_BACKTRACE=${RUST_BACKTRACE:-0}
logs=${CARGO_TARGET_DIR:-target}/flaky
rm -rf "$logs"
mkdir -p "$logs" || exit 1
logs=$(cd "$logs" && pwd)
export UWORK_STEP_LOGS=$logs
# Lines of tab-separated fields: for each run of a suite its kind, name, exit code and seconds; for each failure the kind,
# the suite and the test.
runs=$logs/runs failures=$logs/failures
: >"$runs"
: >"$failures"

readonly mark=$$-$RANDOM
# If this script is killed, the input of this process ends.
exec 7> >(exec setsid ci/end-processes.sh --after-input "$mark" >/dev/null 2>&1)

# start COMMAND...: in the background and in a session of its own, so that Ctrl-C reaches this script alone.
start() { UWORK_RUN=$mark setsid "$@" </dev/null 7>&- & }

# start_kind KIND: sets `wrapper`, and starts busy loops.
wrapper=() loops=()
start_kind() {
    local count=0
    wrapper=(env) loops=()
    case $1 in
        busy*) count=${1#busy} ;;
        pinned) wrapper=(taskset -c "$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')") ;;
        nice) wrapper=(nice -n 19) ;;
        threads*) wrapper=(env RUST_TEST_THREADS="${1#threads}") ;;
    esac
    while [ "$count" -gt 0 ]; do
        start sh -c 'while :; do :; done'
        loops+=($!)
        count=$((count - 1))
    done
}

end_kind() {
    [ "${#loops[@]}" = 0 ] || { kill "${loops[@]}" && wait "${loops[@]}"; } 2>/dev/null
}

# run KIND SUITE ROUND
run() {
    local log=$logs/$1-$2-$3.log status=0 started=$SECONDS names
    start timeout --kill-after=20 "$SUITE_SECONDS_MAX" "${wrapper[@]}" ci/suite.sh "$2" >"$log" 2>&1
    wait $! || status=$?
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$status" $((SECONDS - started)) >>"$runs"
    # The reason stands behind the name.
    names=$(grep -a '^FAILED: ' "$log" | sed 's/^FAILED: //; s/: .*//' | sort -u)
    [ "$status" = 0 ] || [ -n "$names" ] || names="$2: exit code $status"
    [ -z "$names" ] || sed "s/^/$1\t$2\t/" <<<"$names" >>"$failures"
    printf '%-9s round %d of %d  %-8s %5d s  %s\n' "$1" "$3" "$rounds" "$2" $((SECONDS - started)) \
        "${names:+FAILED: ${names//$'\n'/, } ($log)}"
}

table() {
    printf '\n%-9s %-8s %6s %6s %8s\n' kind suite rounds failed "s each"
    awk -F '\t' '{ key = sprintf("%-9s %-8s", $1, $2); if (!(key in n)) order[++count] = key
            n[key]++; red[key] += $3 != 0; s[key] += $4 }
        END { for (i = 1; i <= count; i++) { key = order[i]; printf "%s %6d %6d %8d\n", key, n[key], red[key], s[key] / n[key] } }' "$runs"
    [ -s "$failures" ] || { printf '\nno test failed\n'; return 0; }
    printf '\n%-80s %-9s %6s %8s\n' test kind rounds failures
    awk -F '\t' 'FILENAME == ARGV[1] { rounds[$1, $2]++; next }
        { key = sprintf("%-80s %-9s", $3, $1); n[key]++; of[key] = rounds[$1, $2] }
        END { for (key in n) printf "%s %6d %8d\n", key, of[key], n[key] }' "$runs" "$failures" | sort
    return 1
}

over() {
    trap '' INT TERM HUP
    ci/end-processes.sh "$mark" >"$logs/ended"
    table
}
trap 'over; echo interrupted; exit 130' INT TERM HUP

for suite in "${suites[@]}"; do
    start ci/suite.sh --build "$suite" >"$logs/build-$suite.log" 2>&1
    wait $! || { tail -n 40 "$logs/build-$suite.log"; echo "$suite cannot be built: $logs/build-$suite.log"; exit 1; }
done
echo "built after $SECONDS s; the logs are in $logs"
for kind in "${kinds[@]}"; do
    start_kind "$kind"
    for ((round = 1; round <= rounds; round++)); do
        for suite in "${suites[@]}"; do
            case "$kind $suite" in
                # They have no test threads.
                threads*' c' | threads*' installed' | threads*' address' | threads*' thread') continue ;;
            esac
            run "$kind" "$suite" "$round"
        done
    done
    end_kind
done
over
