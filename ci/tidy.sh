#!/usr/bin/env bash
# The house rules hold, and every test that the documents name exists. To see the rules: cargo xtask help.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo xtask tidy
cargo xtask semantics
