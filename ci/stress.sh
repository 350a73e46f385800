#!/usr/bin/env bash
# Every operation at once on real threads, optimized: crates/*/tests/stress*. An argument sets the rounds.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-3}

packages=()
for test in crates/*/tests/stress*; do
    [ -e "$test" ] || continue
    manifest="${test%%/tests/*}/Cargo.toml"
    packages+=(--package "$(sed -n 's/^name = "\(.*\)"$/\1/p' "$manifest" | head -n 1)")
done
if [ "${#packages[@]}" = 0 ]; then
    echo "stress: skipped, no crate has tests/stress* yet"
    exit 0
fi

for ((round = 1; round <= rounds; round++)); do
    echo "stress: round $round of $rounds"
    cargo test --profile stress "${packages[@]}" --test 'stress*'
done
