#!/usr/bin/env bash
# Ends every process whose environment has UWORK_RUN=MARK: all that a run has started, in whatever group or session. Says
# which they were. With --after-input, only when the standard input ends: when the process that holds its other end has
# ended in any way.
#
# usage: ci/end-processes.sh [--after-input] MARK
set -uo pipefail

# Time to end after SIGTERM, before SIGKILL.
readonly TERM_SECONDS=3

if [ "${1:-}" = --after-input ]; then
    shift
    cat >/dev/null
fi
mark=${1:?usage: ci/end-processes.sh [--after-input] MARK}

marked() { grep -lsz "^UWORK_RUN=$mark\$" /proc/[0-9]*/environ | cut -d / -f 3; }

# end SIGNAL: sends it to all of them. Returns 1 if there are none.
end() {
    local pids
    mapfile -t pids < <(marked)
    [ "${#pids[@]}" != 0 ] || return 1
    kill -s "$1" "${pids[@]}" 2>/dev/null
    return 0
}

mapfile -t pids < <(marked)
for pid in "${pids[@]}"; do
    command=$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") || continue
    [ -z "$command" ] || echo "ends $pid: ${command:0:120}"
done
for ((tenth = 0; tenth < 10 * TERM_SECONDS; tenth++)); do
    end TERM || exit 0
    sleep 0.1
done
# A process may start others while it is killed.
for ((tenth = 0; tenth < 100; tenth++)); do
    end KILL || exit 0
    sleep 0.1
done
echo "still running: $(marked | tr '\n' ' ')"
exit 1
