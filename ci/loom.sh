#!/usr/bin/env bash
# The engine's protocols over all interleavings that loom explores: crates/engine/src/models. Arguments
# choose models by name: ci/loom.sh models::kick
set -euo pipefail
cd "$(dirname "$0")/.."

# A folder of its own: the flag changes every crate, and would have everything built twice each time.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
# A model that fails panics in several threads: pages of stacks would hide the first line.
export RUST_BACKTRACE="${RUST_BACKTRACE:-0}"

if [ -n "${LOOM_MAX_PREEMPTIONS:-}" ]; then
    echo "loom: at most $LOOM_MAX_PREEMPTIONS preemptions in every model"
else
    echo "loom: each model within bounds of its own; LOOM_MAX_PREEMPTIONS=4 looks deeper, and takes hours"
fi
# What each model prints, in one table: how many executions, within which bound, for how long.
cargo test --package uwork-engine --profile models --lib -- --nocapture "${@:-models::}" | grep --line-buffered -v '^test .* ok$'
