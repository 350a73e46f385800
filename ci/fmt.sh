#!/usr/bin/env bash
# The code is formatted. To format it: make fmt.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
