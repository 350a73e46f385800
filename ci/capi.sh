#!/usr/bin/env bash
# Tests the C library: its ABI, its headers alone with every compiler, the contracts of linux/workqueue.h (plain and in
# debug mode), bad input, and the installed tree from the view of a new user. A failure stops only what needs the part
# that has failed; all failures are listed at the end. With --installed, it runs memcheck and what uses the installed
# tree, apart from the examples. With --sanitizers, it runs the programs under the sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
target=$(mkdir -p "$target" && cd "$target" && pwd)
export CARGO_TARGET_DIR=$target
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
source crates/capi/tests/failures.sh
log=$target/capi${1:-}.log
guard=$out/guard
"${CC:-cc}" -O1 -o "$guard" crates/capi/tests/guard.c

# build NAME SANITIZER [LIBRARY]: builds the library with little optimization, because it is built several times.
build() {
    echo "building ${3:-libuwork}${2:+, instrumented: $2}"
    UWORK_SANITIZE=$2 ci/libuwork.sh dev "$target/libuwork-$1" "${3:-libuwork}" >"$out/build.log" 2>&1 || {
        tail -n 40 "$out/build.log"
        return 1
    }
}

# with_library NAME PART COMMAND...: a part that needs the library `build NAME` has built.
with_library() {
    local library=$1 name=$2
    shift 2
    if [ -e "$out/built-$library" ]; then
        UWORK_FAILURES=$failures part "$name" "$log" "$@"
    else
        echo "left out, because $library was not built: $name"
    fi
}

# built NAME BUILD-ARGUMENT...: builds a library as a part.
built() {
    local name=$1
    shift
    part "build $name" "$log" build "$@"
    [ "$part_status" != 0 ] || : >"$out/built-$name"
}

# The tree as a user installs it, and what belongs to it besides the library.
install_tree() {
    rm -rf "$stage"
    BRIDGE=1 UWORK_PROFILE=dev DESTDIR=$stage ci/install.sh >"$out/install.log" 2>&1 || {
        tail -n 40 "$out/install.log"
        return 1
    }
    : >"$out/built-stage"
}

examples() { "$guard" make --silent -C examples/c OUT="$target/examples-c" clean test; }
kernel_examples() { "$guard" make --silent -C kernel/examples OUT="$target/examples-kernel" clean test; }

cmake_example() {
    if ! command -v cmake >/dev/null; then
        echo "left out: cmake is not installed"
        return
    fi
    cmake -S examples/c -B "$target/examples-cmake" -DCMAKE_PREFIX_PATH="$installed" >/dev/null
    cmake --build "$target/examples-cmake" >/dev/null
    "$guard" "$target/examples-cmake/hello-cmake"
}

installed_command() {
    [ "$("$installed/bin/uwork" --version)" = "uwork $(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)" ]
    bash -n "$installed/share/bash-completion/completions/uwork"
    grep -q '^#compdef uwork' "$installed/share/zsh/site-functions/_uwork"
    grep -q 'complete -c uwork' "$installed/share/fish/vendor_completions.d/uwork.fish"
    test -s "$installed/share/man/man1/uwork-doctor.1"
}

# Programs in C that are stuck, as the command names them from their symbols, and without these.
stuck_programs() { UWORK=$installed/bin/uwork PROGRAMS="c c-stripped" lab/stuck/run.sh 1 0; }

manual_pages() {
    if ! command -v mandoc >/dev/null; then
        echo "left out: mandoc is not installed"
        return
    fi
    # The pages of the command are generated, and the generator decides about blank lines.
    mandoc -T lint -W warning "$installed"/share/man/man[37]/*
    mandoc -T lint -W error "$installed"/share/man/man1/*
}

readonly only=${1:-}
case $only in
    "" | --installed | --sanitizers) ;;
    *) echo "allowed are --installed and --sanitizers"; exit 2 ;;
esac

installed_parts() {
    with_library stage examples/cmake cmake_example
    with_library stage "installed command" installed_command
    with_library stage "stuck programs" stuck_programs
}

stage=$target/capi-stage
installed=$stage/usr/local
if [ "$only" = --installed ]; then
    built dev dev ""
    with_library dev memcheck crates/capi/tests/run.sh "$target/libuwork-dev" valgrind
    part "install" "$log" install_tree
    export PKG_CONFIG_PATH=$installed/lib/pkgconfig
    installed_parts
    report_failures
    exit
fi

# Rust's standard library is not instrumented, because that needs rust-src. The address sanitizer watches its
# allocations nevertheless. For the thread sanitizer, races inside it are suppressed (crates/capi/tests/tsan_names.c). The two
# sanitizers cannot be linked into one program.
if [ "$only" = --sanitizers ]; then
    for sanitizer in address thread; do
        built $sanitizer $sanitizer $sanitizer
        with_library $sanitizer "capi ($sanitizer)" crates/capi/tests/run.sh "$target/libuwork-$sanitizer" $sanitizer
        with_library $sanitizer "kernel ($sanitizer)" kernel/tests/run.sh "$target/libuwork-$sanitizer" $sanitizer
    done
    report_failures
    exit
fi

part "failures.sh" "$log" crates/capi/tests/failures-test.sh
part "harness.sh" "$log" crates/capi/tests/harness-test.sh

built dev dev ""
built bridge dev "" libuwork-bridge
with_library dev abi ci/abi.sh
with_library dev capi crates/capi/tests/run.sh "$target/libuwork-dev" headers plain debug bad-input porting valgrind
with_library bridge bridge-capi crates/bridge-capi/tests/run.sh "$target/libuwork-dev"
with_library dev kernel kernel/tests/run.sh "$target/libuwork-dev" headers missing flags own modules documented plain debug

part "install" "$log" install_tree
export PKG_CONFIG_PATH=$installed/lib/pkgconfig
with_library stage examples examples
with_library stage kernel/examples kernel_examples
installed_parts
with_library stage "manual pages" manual_pages
report_failures
