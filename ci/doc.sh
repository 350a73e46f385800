#!/usr/bin/env bash
# The documentation builds without a warning: no dead links, no missing descriptions.
set -euo pipefail
cd "$(dirname "$0")/.."

# Links to what a feature adds are dead without that feature.
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} --deny warnings" cargo doc --package uwork --no-deps --lib
# Libraries only: the command and the library are both called uwork, so their pages would collide. The recorded engine and
# the simulator that uses it have the pages of the others.
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} --deny warnings" cargo doc --workspace --no-deps --lib \
    --exclude uwork-engine-recorded --exclude uwork-sim-costs
