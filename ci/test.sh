#!/usr/bin/env bash
# Runs all tests of all crates: libraries, commands, examples and documentation.
set -euo pipefail
cd "$(dirname "$0")/.."

# Without --all-targets, which would exclude the examples in the documentation.
cargo test --workspace --no-fail-fast
