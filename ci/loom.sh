#!/usr/bin/env bash
# Runs the models of the engine's protocols (crates/engine/src/models) over all interleavings that loom explores.
# Arguments select models by name: ci/loom.sh models::kick
set -euo pipefail
cd "$(dirname "$0")/.."

# Built before the flag is set.
UWORK_XTASK=$(ci/xtask.sh --path)
export UWORK_XTASK

# A folder of its own, because the flag changes every crate, and switching would rebuild everything.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
# A failing model panics in several threads; their stacks would hide the first message.
export RUST_BACKTRACE="${RUST_BACKTRACE:-0}"

if [ -n "${LOOM_MAX_PREEMPTIONS:-}" ]; then
    echo "loom: at most $LOOM_MAX_PREEMPTIONS preemptions in every model"
else
    echo "loom: each model within bounds of its own; LOOM_MAX_PREEMPTIONS=4 explores more, and takes hours"
fi
# One table of all models: the number of executions, the bound, and the duration.
ci/xtask.sh test --package uwork-engine --profile models --lib -- --nocapture "${@:-models::}" |
    grep --line-buffered -v '^test .* ok$'
