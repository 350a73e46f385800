#!/usr/bin/env bash
# clippy has nothing to say, tests and examples included.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --workspace --all-targets -- --deny warnings
