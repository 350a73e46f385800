#!/usr/bin/env bash
# Breaks the engine on purpose, one small change at a time, and lists the changes that no test notices. Needs
# cargo-mutants (make mutants-install). Takes more than an hour and is not part of make test; docs/reliability.md has
# the results. Arguments are passed to cargo mutants: ci/mutants.sh -F remove_queued
set -euo pipefail
cd "$(dirname "$0")/.."

command -v cargo-mutants >/dev/null || { echo "cargo-mutants is missing: make mutants-install"; exit 1; }

# The files that implement waiting, cancelling, freezing and admission.
files=()
for file in wait/{flush,cancel,dependency} lifecycle/freeze words/item/word queue/{flush,limits} queue/pwq/{mod,take,node,permit}; do
    files+=(--file "crates/engine/src/$file.rs")
done
out="${CARGO_TARGET_DIR:-target}/mutants"
mkdir -p "$out"
out=$(cd "$out" && pwd)

# cargo mutants skips unsafe functions, among them cancel, disable and flush, whose callers must keep the item alive.
# So a copy of the tree makes them safe functions; it does not differ otherwise.
rm -rf "$out/tree"
mkdir "$out/tree"
git ls-files -co --exclude-standard -z | tar -c --null --ignore-failed-read -T - | tar -x -C "$out/tree"
sed -i 's/\bunsafe fn/fn/' "$out"/tree/crates/engine/src/wait/{flush,cancel}.rs
sed -i 's/^unsafe fn/fn/' "$out/tree/crates/engine/src/queue/pwq/take.rs"

# Builds dominate the time: no optimization, no debug information, no symbol lookups for panics.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=none RUST_BACKTRACE=0
export UWORK_SIM_SEEDS="${UWORK_SIM_SEEDS:-100}"
unset CARGO_TARGET_DIR

# A mutant that hangs is found by this limit; in virtual time all tests together take seconds.
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
