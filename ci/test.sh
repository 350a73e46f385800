#!/usr/bin/env bash
# Runs all tests of all crates: libraries, commands, examples and documentation. A test that fails runs once more, alone
# (cargo xtask help). Arguments: `--storms without` leaves out the tests that start hundreds of threads, `--storms only`
# runs nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

# Tests whose tools or rights are missing are left out, and so are those that need two CPUs on a machine with one. With CI
# set they fail instead, except for what UWORK_LEFT_OUT names (ci/deps.sh --left-out).

# Without --all-targets, which would exclude the examples in the documentation.
exec ci/xtask.sh test "$@" --workspace
