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
readonly STEPS=(deps fmt tidy clippy test doc capi loom stress)

# Nothing is built twice here, and what cargo keeps for a second build is as large as the build.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0

running=
trap '[ -z "$running" ] || kill "$running" 2>/dev/null; echo "interrupted"; exit 130' INT TERM

free_kib() { df --output=avail -k . | tail -n 1; }
if [ "$(free_kib)" -lt "$DISK_KIB_MIN" ]; then
    echo "warning: $(($(free_kib) / 1024)) MiB are free on this disk, and all steps take up to 4 GiB"
fi

summary=()
failed=0
for step in "${STEPS[@]}"; do
    printf '\n== %s\n' "$step"
    started=$SECONDS
    timeout "$STEP_SECONDS_MAX" "ci/$step.sh" </dev/null &
    running=$!
    wait "$running"
    status=$?
    running=
    case $status in
        0) verdict=ok ;;
        124) verdict="FAILED: still running after $STEP_SECONDS_MAX s" ;;
        *) verdict="FAILED: exit code $status, to repeat: ci/$step.sh" ;;
    esac
    summary+=("$(printf '%-8s %4d s  %s' "$step" $((SECONDS - started)) "$verdict")")
    if [ "$status" != 0 ]; then
        failed=$((failed + 1))
        # Without its tools no step can say anything.
        [ "$step" != deps ] || break
    fi
done

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
[ "$failed" = 0 ] || [ "$(free_kib)" -ge 1048576 ] || echo "the disk is full: $(($(free_kib) / 1024)) MiB are free"
printf '%-8s %4d s  ' all "$SECONDS"
if [ "$failed" != 0 ]; then
    echo "FAILED: $failed of ${#STEPS[@]} steps"
    exit 1
fi
echo ok
