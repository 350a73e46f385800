#!/usr/bin/env bash
# Tests the C library: its ABI, its headers alone with every compiler, the contracts of linux/workqueue.h (plain, in
# debug mode and under the sanitizers), bad input, and the installed tree from the view of a new user.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
target=$(mkdir -p "$target" && cd "$target" && pwd)
log=$target/capi.log

# build NAME SANITIZER: builds the library with little optimization, because it is built several times.
build() {
    echo "building the library${2:+, instrumented: $2}"
    UWORK_SANITIZE=$2 ci/libuwork.sh dev "$target/libuwork-$1" >"$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
}

build dev ""
ci/libuwork.sh dev "$target/libuwork-dev" libuwork-bridge >"$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
ci/abi.sh
crates/capi/tests/run.sh "$target/libuwork-dev" headers plain debug bad-input porting
crates/bridge-capi/tests/run.sh "$target/libuwork-dev"
kernel/tests/run.sh "$target/libuwork-dev" headers missing flags own modules documented plain debug

stage=$target/capi-stage
rm -rf "$stage"
BRIDGE=1 UWORK_PROFILE=dev DESTDIR=$stage ci/install.sh >"$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
export PKG_CONFIG_PATH=$stage/usr/local/lib/pkgconfig
make --silent -C examples/c OUT="$target/examples-c" clean test
make --silent -C kernel/examples OUT="$target/examples-kernel" clean test
if command -v cmake >/dev/null; then
    cmake -S examples/c -B "$target/examples-cmake" -DCMAKE_PREFIX_PATH="$stage/usr/local" >"$log" 2>&1 &&
        cmake --build "$target/examples-cmake" >>"$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
    "$target/examples-cmake/hello-cmake"
else
    echo "left out: cmake is not installed"
fi
installed=$stage/usr/local
[ "$("$installed/bin/uwork" --version)" = "uwork $(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)" ] &&
    bash -n "$installed/share/bash-completion/completions/uwork" &&
    grep -q '^#compdef uwork' "$installed/share/zsh/site-functions/_uwork" &&
    grep -q 'complete -c uwork' "$installed/share/fish/vendor_completions.d/uwork.fish" &&
    test -s "$installed/share/man/man1/uwork-doctor.1" || { echo "the installed command: FAILED"; exit 1; }
if command -v mandoc >/dev/null; then
    # The pages of the command are generated, and the generator decides about blank lines.
    mandoc -T lint -W warning "$installed"/share/man/man[37]/* &&
        mandoc -T lint -W error "$installed"/share/man/man1/* || { echo "manual pages: FAILED"; exit 1; }
else
    echo "left out: mandoc is not installed"
fi

# Rust's standard library is not instrumented, because that needs rust-src. The address sanitizer watches its
# allocations nevertheless. For the thread sanitizer, races inside it are suppressed (crates/capi/tests/tsan_names.c). The two
# sanitizers cannot be linked into one program.
build address address
crates/capi/tests/run.sh "$target/libuwork-address" address
kernel/tests/run.sh "$target/libuwork-address" address
build thread thread
crates/capi/tests/run.sh "$target/libuwork-thread" thread
kernel/tests/run.sh "$target/libuwork-thread" thread
