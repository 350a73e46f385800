#!/usr/bin/env bash
# Runs xtask with these arguments, as `cargo xtask` does, or with --path prints where it is. UWORK_XTASK is one that is
# already built.
set -euo pipefail
cd "$(dirname "$0")/.."

xtask=${UWORK_XTASK:-}
if [ -z "$xtask" ]; then
    cargo build --quiet --package xtask
    xtask=$(realpath "${CARGO_TARGET_DIR:-target}/debug/xtask")
fi
if [ "${1:-}" = --path ]; then
    echo "$xtask"
    exit
fi
# As cargo sets it: xtask finds the checkout with it.
CARGO_MANIFEST_DIR=$PWD/xtask exec "$xtask" "$@"
