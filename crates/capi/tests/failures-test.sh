#!/usr/bin/env bash
# The test of failures.sh: each failure of scripts that share a folder is listed once, with the name of its own script.
set -euo pipefail
unset UWORK_FAILURES
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export UWORK_STEP_LOGS=$out/logs UWORK_RUNNING_FILE=$out/now

# A script with one part, which fails or not. Arguments: its name, and `true` or `false`.
cat >"$out/inner" <<END
set -euo pipefail
out=$out/\$1
mkdir -p "\$out"
source "$here/failures.sh"
part "\$1/part" "\$out/log" "\$2"
report_failures
END

# A script that starts others: NAME OUTCOME...
cat >"$out/outer" <<END
set -euo pipefail
out=\$(mktemp -d -p "$out")
source "$here/failures.sh"
while [ \$# != 0 ]; do
    UWORK_FAILURES=\$failures part "\$1" "\$out/log" bash "$out/inner" "\$1" "\$2"
    shift 2
done
report_failures
END

# lists STATUS NAMES ARGUMENT...: the outer script ends with the status, and lists exactly these failures.
lists() {
    local want=$1 names=$2 status=0 found
    shift 2
    bash "$out/outer" "$@" >"$out/text" || status=$?
    found=$(sed -n 's/^FAILED: \([^:]*\):.*/\1/p' "$out/text" | sort -u | tr '\n' ' ')
    [ "$status $found" = "$want $names" ] || {
        echo "$*: status $status and not $want, listed '$found' and not '$names'"
        cat "$out/text"
        return 1
    }
}

lists 0 "" first true second true
lists 1 "first/part " first false second true
lists 1 "second/part " first true second false third true
lists 1 "first/part second/part " first false second false third true
