#!/usr/bin/env bash
# Breaks the engine on purpose, one small change at a time, and says which changes no test noticed. Needs
# cargo-mutants (make mutants-install). Takes more than an hour, and is no step of make test;
# docs/reliability.md has the figures. Arguments go to cargo mutants: ci/mutants.sh -F take_off
set -euo pipefail
cd "$(dirname "$0")/.."

command -v cargo-mutants >/dev/null || { echo "cargo-mutants is missing: make mutants-install"; exit 1; }

# What waits, takes back, freezes and admits.
files=()
for file in flush cancel freeze dependency word pwq/mod pwq/take pwq/node pwq/place queue/limits; do
    files+=(--file "crates/engine/src/$file.rs")
done
out="${CARGO_TARGET_DIR:-target}/mutants"
mkdir -p "$out"
out=$(cd "$out" && pwd)

# cargo mutants leaves unsafe functions alone, and cancel, disable and flush are such: their callers promise
# that the item lives. In a copy of the tree they are plain functions; nothing else is different there.
rm -rf "$out/tree"
mkdir "$out/tree"
git ls-files -co --exclude-standard -z | tar -c --null --ignore-failed-read -T - | tar -x -C "$out/tree"
sed -i 's/\bunsafe fn/fn/' "$out"/tree/crates/engine/src/{flush,cancel}.rs
sed -i 's/^unsafe fn/fn/' "$out/tree/crates/engine/src/pwq/take.rs"

# Builds count most: no optimization, no debug information, no symbols looked up for panics.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=none RUST_BACKTRACE=0
export UWORK_SIM_SEEDS="${UWORK_SIM_SEEDS:-100}"
unset CARGO_TARGET_DIR

# A mutant that hangs is caught: in virtual time all tests together take seconds.
common=(--dir "$out/tree" --gitignore=false --timeout 30 --build-timeout 300)
for package in uwork-engine uwork-policy; do
    common+=("-C=--config=profile.dev.package.$package.opt-level=0")
done
status=0
cargo mutants "${common[@]}" --output "$out/engine" --test-package uwork-engine -C=--lib -C=--test=virtual_time \
    "${files[@]}" "$@" || status=$?
cargo mutants "${common[@]}" --output "$out/policy" --test-package uwork-policy \
    --file crates/policy/src/admission.rs "$@" || status=$?
echo "mutants: lists in $out/{engine,policy}/mutants.out"
exit "$status"
