#!/usr/bin/env bash
# The library with all features, the command and the C library compile with the oldest supported compiler, which is
# rust-version in Cargo.toml. rustup gets that compiler; without rustup the step says so and fails.
set -euo pipefail
cd "$(dirname "$0")/.."

oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
command -v rustup >/dev/null || {
    echo "rustup is missing, so Rust $oldest cannot be had; ci/clippy.sh reports newer names of std in the meantime"
    exit 1
}
rustup toolchain install "$oldest" --profile minimal --no-self-update
# A folder of its own: results of one compiler are of no use to another.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv
cargo "+$oldest" check --locked --all-features --package uwork --package uwork-cli --package uwork-capi
cargo "+$oldest" check --locked --no-default-features --package uwork
