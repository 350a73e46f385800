#!/usr/bin/env bash
# The documentation builds without a warning: no dead links, no missing descriptions.
set -euo pipefail
cd "$(dirname "$0")/.."

# Libraries only: the command and the library are both called uwork, so their pages would collide.
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} --deny warnings" cargo doc --workspace --no-deps --lib
