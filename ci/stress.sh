#!/usr/bin/env bash
# Runs every operation at once on real threads, optimized: crates/*/tests/stress*. The argument is the number of rounds.
#
#   HISTORIES  number of random histories in virtual time to check first with the oracles (0; 1,000,000 take half an
#              hour, and the tests run 20,000). The oracle of work conservation checks one in 20 of them: each
#              is an open loop of 2,000 items
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

if [ "${HISTORIES:=0}" != 0 ]; then
    echo "stress: $HISTORIES histories"
    UWORK_SIM_SEEDS="$HISTORIES" cargo test --profile stress --package uwork-engine --test virtual_time \
        liveness::no_runnable_item_waits_in_a_pool_below_its_target
    UWORK_SIM_SEEDS=$((HISTORIES / 20 + 1)) cargo test --profile stress --package uwork-engine --test virtual_time \
        open::no_item_waits_while_a_cpu_of_its_mask_idles
    UWORK_SIM_SEEDS="$HISTORIES" cargo test --profile stress --package uwork-sim --test histories
fi

for ((round = 1; round <= rounds; round++)); do
    echo "stress: round $round of $rounds"
    ci/xtask.sh test --profile stress "${packages[@]}" --test 'stress*'
done
