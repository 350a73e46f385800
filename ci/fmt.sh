#!/usr/bin/env bash
# Checks that the code is formatted. To format it: make fmt.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
