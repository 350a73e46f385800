#!/usr/bin/env bash
# Runs every step from a fresh checkout to a green test run. A failure does not stop the other steps; the summary and
# the exit code report it. Each step is a script: to repeat a step, run ci/STEP.sh.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# Far above the duration of a step on two cores; a step that runs longer has failed.
readonly STEP_SECONDS_MAX=1800
# All steps together leave 3.4 GB in the target folder. Without that much space a build fails in the middle, with a
# message from the linker.
readonly DISK_KIB_MIN=$((5 * 1024 * 1024))
# Two lanes run side by side, and the steps of a lane one after another. The last crate of a build, a model, a test that
# waits and a C compiler use one CPU each; the other lane then uses the rest.
readonly LANES=("fmt tidy clippy test doc package" "loom stress capi")

# Disabled, because nothing is built twice here and cargo's data for a second build is as large as the build.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0

target=${CARGO_TARGET_DIR:-target}
logs=$target/steps
mkdir -p "$logs" || exit 1
rm -f "$logs"/*

free_kib() { df --output=avail -k . | tail -n 1; }
if [ "$(free_kib)" -lt "$DISK_KIB_MIN" ]; then
    echo "warning: $(($(free_kib) / 1024)) MiB are free on this disk, and all steps take up to 4 GiB"
fi

# run STEP: prints the step's output when it is over, so that the outputs of steps do not mix, and records the result.
run() {
    local step=$1 started=$SECONDS status=0 verdict
    timeout "$STEP_SECONDS_MAX" "ci/$step.sh" </dev/null >"$logs/$step.log" 2>&1 &
    running=$!
    wait "$running" || status=$?
    running=
    case $status in
        0) verdict=ok ;;
        124) verdict="FAILED: still running after $STEP_SECONDS_MAX s" ;;
        *) verdict="FAILED: exit code $status, to repeat: ci/$step.sh" ;;
    esac
    printf '%-8s %4d s  %s\n' "$step" $((SECONDS - started)) "$verdict" >"$logs/$step.verdict"
    {
        flock 9
        printf '\n== %s\n' "$step"
        cat "$logs/$step.log"
    } 9>"$logs/lock"
    return "$status"
}

# run_lane STEP...: runs the steps one after another, also after a failure.
run_lane() {
    local step
    trap '[ -z "$running" ] || kill "$running" 2>/dev/null; exit 130' INT TERM
    for step in "$@"; do
        run "$step" || true
    done
}

running=
lanes=()
trap 'kill ${running:-} "${lanes[@]}" 2>/dev/null; echo "interrupted"; exit 130' INT TERM

# Without the tools of this step no other step can work.
if run deps; then
    echo "running ${LANES[*]}; the output of a step is printed when it is over; until then it is in $logs"
    for lane in "${LANES[@]}"; do
        # shellcheck disable=SC2086 # A lane is a list of steps.
        run_lane $lane &
        lanes+=($!)
    done
    for lane in "${lanes[@]}"; do
        wait "$lane"
    done
fi

# failures STEP: the lines of a failed step's output that say what failed. The output is long, and the failure may be far
# from its end.
failures() {
    printf '\n== what failed in %s\n' "$1"
    grep -nE -A 4 '^(error|warning: unused)|panicked at|FAILED|SUMMARY: |(exit|signal): [0-9]|hangs: |^E: ' "$logs/$1.log" |
        head -n 120
    printf -- '-- the end of its output\n'
    tail -n 25 "$logs/$1.log"
}

for step in deps ${LANES[*]}; do
    ! grep -qs FAILED "$logs/$step.verdict" || failures "$step"
done

printf '\n== summary\n'
failed=0
for step in deps ${LANES[*]}; do
    [ -e "$logs/$step.verdict" ] || continue
    cat "$logs/$step.verdict"
    ! grep -q FAILED "$logs/$step.verdict" || failed=$((failed + 1))
done
[ "$failed" = 0 ] || [ "$(free_kib)" -ge 1048576 ] || echo "the disk is full: $(($(free_kib) / 1024)) MiB are free"
printf '%-8s %4d s  ' all "$SECONDS"
if [ "$failed" != 0 ]; then
    echo "FAILED: $failed steps"
    exit 1
fi
echo ok
