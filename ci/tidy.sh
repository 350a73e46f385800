#!/usr/bin/env bash
# Checks the house rules, and that every test named in the documents exists. To list the rules: cargo xtask help.
set -euo pipefail
cd "$(dirname "$0")/.."

ci/xtask.sh tidy
ci/xtask.sh semantics
