#!/usr/bin/env bash
# Tests the laboratory, a workspace of its own: clippy, documentation, tests. No part of `make test`, unless with FULL=1.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p "${CARGO_TARGET_DIR:-target}"
CARGO_TARGET_DIR=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
export CARGO_TARGET_DIR
workspace=(--manifest-path lab/Cargo.toml)

cargo clippy "${workspace[@]}" --workspace --all-targets -- --deny warnings
# As `make run` builds it.
cargo clippy "${workspace[@]}" --package uwork-lab --no-default-features -- --deny warnings
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} --deny warnings" cargo doc "${workspace[@]}" --workspace --no-deps --lib
exec ci/xtask.sh test "${workspace[@]}" --workspace
