# Failures that do not stop a script, which sets `out`, a folder of its own, and sources this file: each failure is kept,
# and report_failures lists all of them at the end. A script that starts others passes them UWORK_FAILURES, a folder, and
# lists their failures with its own. With the file UWORK_RUNNING_FILE, what is running is named there, for the case that
# the script is ended.

# Where whole outputs are kept.
kept_outputs=${UWORK_STEP_LOGS:-${CARGO_TARGET_DIR:-$(dirname "${BASH_SOURCE[0]}")/../../../target}/steps}
failures=${UWORK_FAILURES:-$out/failures}
mkdir -p "$failures"
# Those of scripts that ran earlier, with this folder.
earlier=$(ls "$failures")

# keep_output NAME FILE: keeps a copy, whose path is in kept_output. Without a failure, which would hide another one.
keep_output() {
    kept_output=$kept_outputs/${1//[^[:alnum:]_.+-]/-}.log
    { mkdir -p "$kept_outputs" && cp "$2" "$kept_output"; } || kept_output="not kept"
}

# now_running NAME: what is running from now on, or nothing. was_running: what it was before.
was_running() { cat "$out/running" 2>/dev/null || true; }
now_running() {
    local line=${1:+$1$'\n'}
    printf %s "$line" >"$out/running"
    [ -z "${UWORK_RUNNING_FILE:-}" ] || printf %s "$line" >"$UWORK_RUNNING_FILE"
}

# failed NAME REASON [FILE]: keeps a failure, with the last lines of the file, and the whole file beside the logs of steps.
failed() {
    local kept=$failures/${1//\//-} kept_output=
    # Two failures with one name are both kept.
    while [ -e "$kept" ]; do kept+=+; done
    [ -z "${3:-}" ] || keep_output "$(basename "$kept")" "$3"
    {
        printf 'FAILED: %s: %s\n' "$1" "$2"
        [ -z "${3:-}" ] || tail -n 16 "$3" | sed 's/^/    /'
        [ -z "${3:-}" ] || [ "$(wc -l <"$3")" -le 16 ] || echo "    the whole output: $kept_output"
    } >"$kept"
    head -n 1 "$kept"
}

# part NAME LOG COMMAND...: runs a command or a function, shows its output and its time, keeps the output in LOG, and goes
# on after a failure; part_status is its exit code. A function runs in a subshell, and stops at its first command that fails.
# A part that is ended waits for its program first: the output is kept when that is complete.
#
# Not to be called in a condition (`part ... ||`), where the shell ignores failures inside of functions.
part() {
    local name=$1 log=$2 before outer began=$SECONDS
    shift 2
    outer=$(was_running)
    before=$(ls "$failures")
    now_running "$name"
    set +e
    (
        # The traps of the script do not hold here.
        trap 'exit 143' TERM INT
        set -e
        "$@"
    ) 2>&1 | tee "$log"
    part_status=${PIPESTATUS[0]}
    set -e
    now_running "$outer"
    echo "$name: $((SECONDS - began)) s"
    # Unless the command itself has kept what failed.
    [ "$part_status" = 0 ] || [ "$before" != "$(ls "$failures")" ] || failed "$name" "exit code $part_status" "$log"
}

# Lists all failures, each with the end of its output, and returns whether there are none of this script. A script whose
# caller lists them does not.
report_failures() {
    local kept=("$failures"/*) status=0
    [ "$earlier" = "$(ls "$failures")" ] || status=1
    if [ "$status" = 1 ] && [ -z "${UWORK_FAILURES:-}" ]; then
        printf '\n'
        cat "${kept[@]}"
        # The outputs may be long, so all names follow.
        [ ${#kept[@]} = 1 ] || head -qn 1 "${kept[@]}"
    fi
    return "$status"
}
