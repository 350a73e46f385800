# Failures that do not stop a script, which sets `out`, a folder of its own, and sources this file: each failure is kept,
# and report_failures lists all of them at the end. A script that starts others passes them UWORK_FAILURES, a folder, and
# lists their failures with its own.

failures=${UWORK_FAILURES:-$out/failures}
mkdir -p "$failures"
# Those of scripts that ran earlier, with this folder.
earlier=$(ls "$failures")

# failed NAME REASON [FILE]: keeps a failure, with the last lines of the file.
failed() {
    local kept=$failures/${1//\//-}
    # Two failures with one name are both kept.
    while [ -e "$kept" ]; do kept+=+; done
    {
        printf 'FAILED: %s: %s\n' "$1" "$2"
        [ -z "${3:-}" ] || tail -n 16 "$3" | sed 's/^/    /'
    } >"$kept"
    head -n 1 "$kept"
}

# part NAME LOG COMMAND...: runs a command or a function, shows its output and its time, keeps the output in LOG, and goes
# on after a failure; part_status is its exit code. A function runs in a subshell, and stops at its first command that fails.
#
# Not to be called in a condition (`part ... ||`), where the shell ignores failures inside of functions.
part() {
    local name=$1 log=$2 before began=$SECONDS
    shift 2
    before=$(ls "$failures")
    set +e
    (
        set -e
        "$@"
    ) 2>&1 | tee "$log"
    part_status=${PIPESTATUS[0]}
    set -e
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
