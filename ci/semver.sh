#!/usr/bin/env bash
# Compares the public interface of the crate uwork with that of a tag or commit (the argument; default: the last tag),
# and names changes that its version does not permit. Needs cargo-semver-checks (make semver-install).
set -euo pipefail
cd "$(dirname "$0")/.."

command -v cargo-semver-checks >/dev/null || { echo "cargo-semver-checks is missing: make semver-install"; exit 1; }
base=${1:-$(git describe --tags --abbrev=0 2>/dev/null)} || {
    echo "no tag exists yet, so there is no version to compare with; ci/semver.sh COMMIT compares with a commit"
    exit 0
}
# The crates below uwork promise nothing: programs depend on uwork alone.
cargo semver-checks --package uwork --baseline-rev "$base" --all-features
