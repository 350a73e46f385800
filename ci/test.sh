#!/usr/bin/env bash
# All tests of all crates: of the libraries, the commands, the examples and the documentation.
set -euo pipefail
cd "$(dirname "$0")/.."

# Without --all-targets, which would leave the documentation's examples out.
cargo test --workspace --no-fail-fast
