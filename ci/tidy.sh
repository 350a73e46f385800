#!/usr/bin/env bash
# Checks the house rules, that every test named in the documents exists, that the planted defects apply, and the scripts
# that run the steps (ci/tests). To list the rules: cargo xtask help.
set -euo pipefail
cd "$(dirname "$0")/.."

if git grep -nE '^(<<<<<<<|[|]{7}|>>>>>>>) '; then
    echo 'A merge has left these markers.' >&2
    exit 1
fi
ci/xtask.sh tidy
ci/xtask.sh semantics
ci/defects.sh --check
for test in ci/tests/*.sh; do "$test"; done
