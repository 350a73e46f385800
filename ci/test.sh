#!/usr/bin/env bash
# Runs all tests of all crates: libraries, commands, examples and documentation. A test that fails runs once more, alone
# (cargo xtask help). Arguments: `--storms without` leaves out the tests that start hundreds of threads, `--storms only`
# runs nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

# Tests that need two CPUs are left out on a machine with one. With CI set they fail there: no test may be left out
# unnoticed. So do tests that need a redis-server or openssl.
[ -z "${CI:-}" ] || export UWORK_TEST_NEEDS_CPUS=1

# Without --all-targets, which would exclude the examples in the documentation.
exec ci/xtask.sh test "$@" --workspace
