#!/usr/bin/env bash
# The test of ci/deps.sh, with a cargo and an apt-get of its own: what it fetches, and what it says if that fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# This one notes its arguments, and fails if they are in $place/fails. No package can be fetched.
cat >"$place/cargo" <<END
#!/usr/bin/env bash
echo "cargo \$*" >>"$place/calls"
! grep -sqxF -e "cargo \$*" "$place/fails"
END
printf '#!/bin/sh\nexit 1\n' >"$place/apt-get"
chmod +x "$place/cargo" "$place/apt-get"
export PATH=$place:$PATH DEPS_PAUSE_SECONDS=0

complain() {
    echo "ci/deps.sh: $1:"
    cat "$place/text" "$place/calls"
    exit 1
}

# ends STATUS
ends() {
    local status=0
    : >"$place/calls"
    ci/deps.sh >"$place/text" 2>&1 || status=$?
    [ "$status" = "$1" ] || complain "status $status instead of $1"
}

# fetches COUNT MANIFEST: how often the dependencies of a manifest are fetched.
fetches() {
    local count
    count=$(grep -cxF -e "cargo fetch --locked --quiet$2" "$place/calls") || true
    [ "$count" = "$1" ] || complain "$count fetches and not $1: $2"
}
readonly LABORATORY=' --manifest-path lab/Cargo.toml'

FULL='' ends 0
fetches 1 ''
fetches 0 "$LABORATORY"
FULL=1 ends 0
fetches 1 ''
fetches 1 "$LABORATORY"
# A network that is away.
echo "cargo fetch --locked --quiet$LABORATORY" >"$place/fails"
FULL=1 ends 1
fetches 3 "$LABORATORY"
grep -q '^cannot fetch the dependencies' "$place/text" || complain "the reason is not named"

# The names of what is missing are in the lines about it.
mapfile -t names < <(ci/deps.sh --left-out | tr ',' '\n')
rm "$place/fails"
ends 0
[ "$(grep -c '^left out, ' "$place/text")" -le "${#names[@]}" ] || complain "a line has no name: ${names[*]}"
echo "ci/deps.sh: ok"
