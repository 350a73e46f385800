#!/usr/bin/env bash
# Runs the tests of one suite, as ci/flaky.sh needs it: without the checks that have no chance in them. With --build, only
# builds what the suite needs. The C suites need it to be built before.
#
# usage: ci/suite.sh [--build] SUITE
#
#   SUITE  rust, lab (the laboratory), doc (examples in the documentation), stress, loom, c (the API, the bridge, the
#          kernel's headers, the examples), installed (memcheck, and what uses the installed tree), address, thread (with
#          these sanitizers)
#
#   SUITE_TESTS  in the suites rust and lab, runs only the tests whose names contain this text
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
stage=$target/capi-stage

build() {
    case $1 in
        rust | lab | stress | loom) UWORK_NO_RUN=1 run "$1" ;;
        # rustdoc compiles and runs at once.
        doc) ;;
        c | installed)
            ci/libuwork.sh dev "$target/libuwork-dev" && ci/libuwork.sh dev "$target/libuwork-dev" libuwork-bridge &&
                rm -rf "$stage" && BRIDGE=1 UWORK_PROFILE=dev DESTDIR=$stage ci/install.sh
            ;;
        address | thread) UWORK_SANITIZE=$1 ci/libuwork.sh dev "$target/libuwork-$1" ;;
    esac
}

run() {
    local filter=() status=0
    [ -z "${SUITE_TESTS:-}" ] || filter=(-- "$SUITE_TESTS")
    case $1 in
        rust) ci/xtask.sh test --doc-tests without --workspace "${filter[@]}" ;;
        lab)
            CARGO_TARGET_DIR=$target ci/xtask.sh test --doc-tests without --manifest-path lab/Cargo.toml --workspace \
                "${filter[@]}"
            ;;
        doc) ci/xtask.sh test --doc --workspace ;;
        stress) ci/stress.sh 1 ;;
        loom) ci/loom.sh ;;
        c)
            export PKG_CONFIG_PATH=$stage/usr/local/lib/pkgconfig
            crates/capi/tests/run.sh "$target/libuwork-dev" plain debug bad-input porting || status=1
            crates/bridge-capi/tests/run.sh "$target/libuwork-dev" || status=1
            kernel/tests/run.sh "$target/libuwork-dev" own modules documented plain debug || status=1
            make --silent -C examples/c OUT="$target/examples-c" clean test || { echo "FAILED: examples/c"; status=1; }
            make --silent -C kernel/examples OUT="$target/examples-kernel" clean test ||
                { echo "FAILED: kernel/examples"; status=1; }
            return "$status"
            ;;
        installed) ci/capi.sh --installed ;;
        address | thread)
            crates/capi/tests/run.sh "$target/libuwork-$1" "$1" || status=1
            kernel/tests/run.sh "$target/libuwork-$1" "$1" || status=1
            return "$status"
            ;;
        *) echo "no such suite: $1"; return 2 ;;
    esac
}

case ${1:-} in
    --build) build "${2:?usage: ci/suite.sh [--build] SUITE}" ;;
    *) run "${1:?usage: ci/suite.sh [--build] SUITE}" ;;
esac
