#!/usr/bin/env bash
# The C library: its ABI, its headers alone with every compiler, the contracts of linux/workqueue.h plain, in the debug
# mode and under the sanitizers, bad input, and what is installed, as a new user would use it.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
target=$(mkdir -p "$target" && cd "$target" && pwd)
log=$target/capi.log

# build NAME SANITIZER: the library, built without much optimization, so that it can be done often.
build() {
    echo "building the library${2:+, instrumented: $2}"
    UWORK_SANITIZE=$2 ci/libuwork.sh dev "$target/libuwork-$1" >"$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
}

build dev ""
ci/abi.sh
crates/capi/tests/run.sh "$target/libuwork-dev" headers own modules plain debug bad-input

stage=$target/capi-stage
rm -rf "$stage"
UWORK_PROFILE=dev DESTDIR=$stage ci/install.sh >"$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
export PKG_CONFIG_PATH=$stage/usr/local/lib/pkgconfig
make --silent -C examples/c OUT="$target/examples-c" clean test
make --silent -C examples/kmod OUT="$target/examples-kmod" clean test
if command -v cmake >/dev/null; then
    cmake -S examples/c -B "$target/examples-cmake" -DCMAKE_PREFIX_PATH="$stage/usr/local" >"$log" 2>&1 &&
        cmake --build "$target/examples-cmake" >>"$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
    "$target/examples-cmake/hello-cmake"
else
    echo "left out: cmake is not installed"
fi
if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning "$stage"/usr/local/share/man/man*/* || { echo "manual pages: FAILED"; exit 1; }
else
    echo "left out: mandoc is not installed"
fi

# Rust's own library is not instrumented: rust-src would be needed. Address: what it allocates is watched all the same.
# Thread: races inside of it are left out (tests/tsan_names.c). Both at once cannot be linked.
build address address
crates/capi/tests/run.sh "$target/libuwork-address" address
build thread thread
crates/capi/tests/run.sh "$target/libuwork-thread" thread
