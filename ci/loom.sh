#!/usr/bin/env bash
# The engine's protocols over all interleavings that loom explores: crates/engine/tests/loom_*.rs.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! compgen -G 'crates/engine/tests/loom_*' >/dev/null; then
    echo "loom: skipped, crates/engine/tests has no loom_* yet"
    exit 0
fi

# A folder of its own: the flag changes every crate, and would have everything built twice each time.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
# Fast models that still assert; one set of link-time optimization per model would cost more than it saves.
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
export CARGO_PROFILE_RELEASE_LTO=off
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
# Bugs that need more forced switches than this are rare, and each more costs a factor. Raise it to look deeper.
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}"

echo "loom: at most $LOOM_MAX_PREEMPTIONS preemptions"
cargo test --package uwork-engine --release --test 'loom_*'
