#!/usr/bin/env bash
# Checks that the code is formatted. To format it: make fmt.
set -euo pipefail
cd "$(dirname "$0")/.."

# Also those of the product, on which the laboratory depends; the rest of the product is in its own workspace.
cargo fmt --all --check
cargo fmt --all --check --manifest-path lab/Cargo.toml
