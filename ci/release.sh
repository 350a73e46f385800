#!/usr/bin/env bash
# What a release needs beside a green ci/all.sh: the packages build, the oldest compiler accepts the code, licences and
# advisories are checked, the public interface fits the version, and the Debian packages work. A failure, or a tool that
# is missing, does not stop the other steps; the summary and the exit code report it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=0
summary=
step() {
    local name=$1 started=$SECONDS verdict=ok
    shift
    printf '\n== %s\n' "$name"
    "$@" || { verdict="FAILED: $*"; failed=$((failed + 1)); }
    summary+=$(printf '%-8s %4d s  %s' "$name" $((SECONDS - started)) "$verdict")$'\n'
}

step package ci/package.sh --build
step msrv ci/msrv.sh
step deny make --no-print-directory deny
step semver ci/semver.sh
step deb ci/deb-test.sh

printf '\n== summary\n%s' "$summary"
[ "$failed" = 0 ]
