#!/usr/bin/env bash
# Runs every benchmark and makes a page of the figures. Takes more than an hour; --quick takes some minutes.
#
# usage: ci/bench.sh [--quick]
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
folder=$target/bench
# One after the other: mimalloc, a rival in uwork-lab, has huge pages there.
CARGO_TARGET_DIR=$target cargo build --release --manifest-path lab/Cargo.toml --package uwork-lab
cargo build --release --package uwork-cli
"$target/release/uwork-lab" bench all --folder "$folder" "$@"
files=("$folder"/*.json)
"$target/release/uwork" report "${files[@]}" --output "$folder/report.html" >/dev/null
realpath "$folder/report.html"
