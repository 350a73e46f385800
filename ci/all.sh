#!/usr/bin/env bash
# Runs the steps from a fresh checkout to a green test run: those that each change needs, or with FULL=1 all. A failure
# does not stop the other steps; the summary and the exit code report it. Each step is a script: to repeat a step, run
# ci/STEP.sh.
#
# The last lines name each test that failed, and after them each that failed and passed when it was repeated
# ("flaky: NAME"; ci/known-flakes.txt has those with a known cause). However this script ends, nothing that it has
# started is left running.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# CI ends a run after 90 minutes, without a word. A busy machine needs many times as long for a step as a quiet one, so
# that a step has no limit of its own.
readonly RUN_SECONDS_MAX=$((85 * 60))
# All steps together leave 4 GB in the target folder. Without that much space a build fails in the middle, with a
# message from the linker.
readonly DISK_KIB_MIN=$((5 * 1024 * 1024))
# The lanes run side by side, and the steps of a lane one after another. The last crate of a build, a model, a test that
# waits and a C compiler use one CPU each; the other lanes then use the rest.
readonly LANES=("fmt tidy clippy test doc package" ${FULL:+"loom stress sanitizers"} "capi${FULL:+ lab}")
# Steps that run by themselves check all that they can.
if [ -n "${FULL:-}" ]; then unset UWORK_QUICK; else export UWORK_QUICK=1; fi
# Then, beside nothing else.
readonly ALONE=storms
readonly STEPS="deps ${LANES[*]} $ALONE"
# The names of tests that failed are within the last 60 lines, with the summary, which is behind them.
readonly NAMES_MAX=30 FLAKY_MAX=6

# Disabled, because nothing is built twice here and cargo's data for a second build is as large as the build.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0

target=${CARGO_TARGET_DIR:-target}
{ mkdir -p "$target/steps" && target=$(cd "$target" && pwd) && logs=$target/steps && rm -rf "${logs:?}"/* &&
    echo >"$logs/writable"; } || {
    echo "cannot write to $target/steps; its disk:"
    df -h "$target"
    exit 1
}
# Where tests keep their logs, and name those that passed when they were repeated.
unset UWORK_XTASK
export UWORK_STEP_LOGS=$logs UWORK_FLAKY_FILE=$logs/flaky

# In the environment of all processes of this run, but not of this script.
readonly mark=$$-$RANDOM
# If this script is killed, the input of this process ends.
exec 7> >(exec setsid ci/end-processes.sh --after-input "$mark" >/dev/null 2>&1)

free_kib() { df --output=avail -k "$target" | tail -n 1; }
if [ "$(free_kib)" -lt "$DISK_KIB_MIN" ]; then
    echo "warning: $(($(free_kib) / 1024)) MiB are free on the disk of $target, and all steps take up to 5 GiB"
fi

command_of() {
    case $1 in
        test) echo ci/test.sh --storms without ;;
        storms) echo ci/test.sh --storms only ;;
        sanitizers) echo ci/capi.sh --sanitizers ;;
        *) echo "ci/$1.sh" ;;
    esac
}

# Sets cpu_seconds to the CPU time of all processes that this shell has waited for.
note_cpu() {
    local file=$logs/times-$BASHPID
    times >"$file"
    cpu_seconds=$(awk -F '[ms ]+' 'NR == 2 { printf "%d", 60 * ($1 + $3) + $2 + $4 }' "$file")
}

# run STEP: prints the step's output when it is over, so that the outputs of steps do not mix, and records the result.
run() {
    local step=$1 started=$SECONDS status=0 cpu_before verdict command left
    command=$(command_of "$step")
    left=$((RUN_SECONDS_MAX - SECONDS))
    [ "$left" -gt 0 ] || return 0
    note_cpu
    cpu_before=$cpu_seconds
    # shellcheck disable=SC2086 # A command with its arguments.
    UWORK_RUN=$mark UWORK_RUNNING_FILE=$logs/$step.running setsid \
        timeout --kill-after=20 "$left" $command </dev/null >"$logs/$step.log" 2>&1 7>&- &
    wait $! || status=$?
    note_cpu
    case $status in
        0) verdict=ok ;;
        124 | 137) verdict="FAILED: ended, with the run, after $((SECONDS / 60)) minutes" ;;
        *) verdict="FAILED: exit code $status, to repeat: $command" ;;
    esac
    printf '%-10s %4d s  CPU %4d s  %s\n' \
        "$step" $((SECONDS - started)) $((cpu_seconds - cpu_before)) "$verdict" >"$logs/$step.verdict"
    {
        flock 9
        printf '\n== %s\n' "$step"
        cat "$logs/$step.log"
    } 9>"$logs/lock"
    return "$status"
}

# run_lane STEP...: runs the steps one after another, also after a failure, as long as this script runs.
run_lane() {
    local step
    exec 7>&-
    for step in "$@"; do
        ! kill -0 $$ 2>/dev/null || run "$step" || true
    done
}

# running: the tests that were running when their step was ended.
running() { cat "$logs"/*.running 2>/dev/null | sed 's/^/was running: /'; }

lanes=() left_out=
interrupted() {
    trap '' INT TERM HUP
    # The shell would report that they were killed.
    [ "${#lanes[@]}" = 0 ] || { kill -KILL "${lanes[@]}" && wait "${lanes[@]}"; } 2>/dev/null
    running
    ci/end-processes.sh "$mark" >"$logs/ended"
    echo interrupted
    exit 130
}
trap interrupted INT TERM HUP

# Without the tools of this step no other step can work.
if run deps; then
    left_out=$(grep '^left out, ' "$logs/deps.log")
    # With CI set, a test that is left out fails, except for these, which are named below.
    UWORK_LEFT_OUT=$(ci/deps.sh --left-out)
    export UWORK_LEFT_OUT
    # Built once, before the lanes: later, cargo would wait for the build of the other lane. If this fails, each step
    # says why.
    UWORK_RUN=$mark setsid timeout --kill-after=20 $((RUN_SECONDS_MAX - SECONDS)) \
        cargo build --quiet --package xtask </dev/null >"$logs/xtask.log" 2>&1 7>&- &
    if wait $!; then export UWORK_XTASK=$target/debug/xtask; fi
    echo "running ${LANES[*]}; the output of a step is printed when it is over; until then it is in $logs"
    for lane in "${LANES[@]}"; do
        # shellcheck disable=SC2086 # A lane is a list of steps.
        run_lane $lane &
        lanes+=($!)
    done
    wait "${lanes[@]}"
    lanes=()
    run "$ALONE"
fi
left_running=$(ci/end-processes.sh "$mark")

# has_failed STEP: also if the disk had no space for its result.
has_failed() { ! grep -qs ' ok$' "$logs/$1.verdict"; }
was_started() { [ -e "$logs/$1.log" ]; }

# failures STEP: the lines of a failed step's output that say what failed. The output is long, and the failure may be far
# from its end.
failures() {
    printf '\n== what failed in %s\n' "$1"
    grep -anE -A 4 '^(error|warning: unused)|panicked at|FAILED|SUMMARY: |(exit|signal): [0-9]|hangs: |^E: ' "$logs/$1.log" |
        head -n 120
    printf -- '-- the end of its output\n'
    tail -n 25 "$logs/$1.log"
}

# names STEP MAX: what failed in it, in MAX lines at most: the names of tests, or else the errors of a compiler, or else
# the end of the output.
names() {
    local log=$logs/$1.log lines count max=$2
    lines=$({ sed 's/^/was running: /' "$logs/$1.running"; grep -a '^FAILED: ' "$log"; } 2>/dev/null | awk '!seen[$0]++')
    [ -n "$lines" ] || lines=$(grep -aE '^error(\[|:)|FAILED' "$log" | awk '!seen[$0]++')
    [ -n "$lines" ] || lines=$(grep -av '^ *$' "$log" | tail -n 3)
    count=$(wc -l <<<"$lines")
    [ "$count" -le "$max" ] || max=$((max - 1))
    cut -c 1-160 <<<"${lines:-nothing was written}" | head -n "$max" | sed "s/^/$1: /"
    [ "$count" -le "$max" ] || echo "$1: and $((count - max)) more: $log"
}

failed=()
for step in $STEPS; do
    ! was_started "$step" || ! has_failed "$step" || failed+=("$step")
done
for step in "${failed[@]}"; do failures "$step"; done
# Above the names: there may be many of these lines. What was missing later, as a mount that was refused, is said by the
# test, which passes without CI.
left_out=$({ [ -z "$left_out" ] || echo "$left_out"; } && grep -ahs ': left out, ' "$logs"/*.log | sort -u)
[ -z "$left_out" ] || printf '\n%s\n' "$left_out"
if [ "${#failed[@]}" != 0 ]; then
    printf '\n== what failed\n'
    for step in "${failed[@]}"; do names "$step" $((NAMES_MAX / ${#failed[@]})); done
fi

printf '\n== summary\n'
for step in $STEPS; do
    if [ -s "$logs/$step.verdict" ]; then
        cat "$logs/$step.verdict"
    elif was_started "$step"; then
        echo "$step: FAILED: without a result"
    elif [ "$step" != deps ]; then
        echo "$step: not run"
        failed+=("$step")
    fi
done
[ -z "$left_running" ] || printf 'left running by a test:\n%s\n' "$(head -n 5 <<<"$left_running")"
if [ "${#failed[@]}" != 0 ] && { [ "$(free_kib)" -lt 1048576 ] || grep -qas 'No space left on device' "$logs"/*.log; }; then
    echo "the disk of $target is full: $(($(free_kib) / 1024)) MiB are free"
fi
printf '%-10s %4d s  ' all "$SECONDS"
[ "${#failed[@]}" != 0 ] || echo ok
[ "${#failed[@]}" = 0 ] || echo "FAILED: ${failed[*]}"

# known NAME: whether the list of known flakes has it.
known() { sed 's/ # .*//' ci/known-flakes.txt | grep -qxF -e "$1"; }
while read -r _ name; do
    if known "$name"; then echo "flaky: $name"; else echo "flaky: $name (not on the list)"; fi
done < <(sort -u "$UWORK_FLAKY_FILE" 2>/dev/null | head -n "$FLAKY_MAX")
flaky=$(sort -u "$UWORK_FLAKY_FILE" 2>/dev/null | wc -l)
[ "$flaky" -le "$FLAKY_MAX" ] || echo "flaky: and $((flaky - FLAKY_MAX)) more: $UWORK_FLAKY_FILE"
[ "${#failed[@]}" = 0 ]
