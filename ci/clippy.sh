#!/usr/bin/env bash
# clippy has nothing to say, tests and examples included; nor of the library without its default features.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --workspace --all-targets -- --deny warnings
cargo clippy --package uwork --all-targets --no-default-features -- --deny warnings
