#!/usr/bin/env bash
# clippy reports nothing, including tests and examples; also for the library without its default features, with no
# feature at all, and with one, and for the command without its commands, and with one group of them.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --workspace --all-targets -- --deny warnings
# make test without FULL=1.
[ -z "${UWORK_QUICK:-}" ] || exit 0
cargo clippy --package uwork --all-targets --no-default-features -- --deny warnings
cargo clippy --package uwork-cli --no-default-features -- --deny warnings
for feature in bridge process sim; do
    cargo clippy --package uwork-cli --no-default-features --features "$feature" -- --deny warnings
done
cargo clippy --package uwork --lib --no-default-features -- --deny warnings
# Each feature alone, and the C library, whose features are a choice of its own.
for feature in control percpu rcu task ring sysfs symbols tracing; do
    cargo clippy --package uwork --lib --no-default-features --features "$feature" -- --deny warnings
done
cargo clippy --package uwork-capi --lib -- --deny warnings
