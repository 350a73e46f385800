#!/usr/bin/env bash
# Every step from a fresh checkout to a green test run. All steps run, whatever fails; the summary and the
# exit code tell. Each step is a script of its own: to repeat one, run ci/STEP.sh.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# Far above what a step takes on two cores; a step that hangs is a step that failed.
readonly STEP_SECONDS_MAX=900
# What all steps leave in the target folder is 3.4 GB; a machine without that much fails in the middle, in words of the
# linker's.
readonly DISK_KIB_MIN=$((5 * 1024 * 1024))
# Side by side, the steps of a lane one after another: the last crate of a build, a model, a test that waits or a compiler
# of C use one CPU, and the other lane has work for the rest.
readonly LANES=("fmt tidy clippy test doc" "loom stress capi")

# Nothing is built twice here, and what cargo keeps for a second build is as large as the build.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0

target=${CARGO_TARGET_DIR:-target}
logs=$target/steps
mkdir -p "$logs" || exit 1
rm -f "$logs"/*

free_kib() { df --output=avail -k . | tail -n 1; }
if [ "$(free_kib)" -lt "$DISK_KIB_MIN" ]; then
    echo "warning: $(($(free_kib) / 1024)) MiB are free on this disk, and all steps take up to 4 GiB"
fi

# run STEP: shows what it has said once it is over, so that steps do not mix, and notes how it went.
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

# run_lane STEP...: one after another, whatever fails.
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

# Without its tools no step can say anything.
if run deps; then
    echo "running ${LANES[*]}; what a step says is shown when it is over, and meanwhile in $logs"
    for lane in "${LANES[@]}"; do
        # shellcheck disable=SC2086 # A lane is a list of steps.
        run_lane $lane &
        lanes+=($!)
    done
    for lane in "${lanes[@]}"; do
        wait "$lane"
    done
fi

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
