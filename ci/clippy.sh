#!/usr/bin/env bash
# clippy reports nothing, including tests and examples; also for the library without its default features, and with no
# feature at all.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --workspace --all-targets -- --deny warnings
cargo clippy --package uwork --all-targets --no-default-features -- --deny warnings
cargo clippy --package uwork --lib --no-default-features -- --deny warnings
