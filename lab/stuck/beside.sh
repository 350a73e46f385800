#!/usr/bin/env bash
# How long the commands of the view from outside take beside a process that is stopped, one that was killed and left its
# socket, and one that has the CPU for 5 ms of each 100. Prints the longest of ROUNDS calls of each. The hostile process
# is that of `ci/fuzz.sh hostile`.
#
#     lab/stuck/beside.sh [ROUNDS]        20
#
# UWORK: another command, such as that of a release build. Needs cargo, and no root.
set -euo pipefail
cd "$(dirname "$0")/../.."

rounds=${1:-20}
target=${CARGO_TARGET_DIR:-target}
uwork=${UWORK:-$target/debug/uwork}
[ -n "${UWORK:-}" ] || cargo build --quiet --package uwork-cli
cargo build --quiet --package uwork --example stuck

out=$(mktemp -d)
export XDG_RUNTIME_DIR=$out
mkfifo "$out/in"
process='' holder=''
finish() {
    kill -KILL ${process:+"$process"} ${holder:+"$holder"} 2>/dev/null || true
    rm -rf "$out"
}
trap finish EXIT

start() {
    : >"$out/pid"
    "$target/debug/examples/stuck" call <"$out/in" >"$out/pid" &
    process=$!
    # No message at its end.
    disown
    exec 7>"$out/in"
    until [ -s "$out/pid" ]; do kill -0 "$process" && sleep 0.05; done
}

slow_down() {
    while kill -STOP "$1" 2>/dev/null; do
        sleep 0.095
        kill -CONT "$1"
        sleep 0.005
    done
}

printf '%-8s %-40s %s\n' process command 'longest of calls, seconds'
for state in stopped killed slow; do
    start
    case $state in
        stopped) kill -STOP "$process" ;;
        killed) kill -KILL "$process"; while kill -0 "$process" 2>/dev/null; do sleep 0.01; done ;;
        slow) slow_down "$process" & holder=$! ;;
    esac
    for command in ls "ls $process" "dump $process" "dump --stacks $process" doctor "doctor $process" \
        "get $process cpumask" "set $process module/parameters/watchdog_thresh 30"; do
        longest=0
        for ((round = 0; round < rounds; round++)); do
            begin=${EPOCHREALTIME/[.,]/}
            "$uwork" $command >"$out/said" 2>&1 || true
            took=$((${EPOCHREALTIME/[.,]/} - begin))
            [ "$took" -le "$longest" ] || longest=$took
        done
        printf '%-8s %-40s %d.%02d\n' "$state" "${command//$process/PID}" $((longest / 1000000)) $((longest / 10000 % 100))
    done
    kill -KILL ${holder:+"$holder"} 2>/dev/null || true
    kill -KILL "$process" 2>/dev/null || true
    exec 7>&-
    holder=''
done
