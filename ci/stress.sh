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

# Random histories in virtual time, under the oracle of liveness.
echo "stress: ${HISTORIES:=1000000} histories"
UWORK_SIM_SEEDS="$HISTORIES" cargo test --release --package uwork-engine --test virtual_time \
    liveness::no_runnable_item_waits_beside_a_free_place

for ((round = 1; round <= rounds; round++)); do
    echo "stress: round $round of $rounds"
    cargo test --profile stress "${packages[@]}" --test 'stress*'
done
