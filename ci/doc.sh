#!/usr/bin/env bash
# The documentation builds without a warning: no dead link, no missing description.
set -euo pipefail
cd "$(dirname "$0")/.."

# Libraries only: the command and the library are both called uwork, and would write the same page.
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} --deny warnings" cargo doc --workspace --no-deps --lib
