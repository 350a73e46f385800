#!/usr/bin/env bash
# Installs the missing tools to build and test uwork, or prints what is missing and how to install it.
set -euo pipefail
cd "$(dirname "$0")/.."

# The oldest compiler whose lints, tests and laboratory are known to work. Users need only rust-version (Cargo.toml).
rust_wanted=1.95
missing=0

have() { command -v "$1" >/dev/null 2>&1; }

is_root_with_apt() { [ "$(id -u)" = 0 ] && have apt-get; }

# say_missing WHAT COMMAND
say_missing() {
    printf 'missing: %s\n  %s\n' "$1" "$2"
    missing=1
}

# install PACKAGE...: installs from Debian's archive, without starting services.
install() {
    echo "installing: $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    # This policy prevents services from starting, unless the machine has a policy of its own.
    local policy=/usr/sbin/policy-rc.d status=0
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    apt-get install -y --no-install-recommends "$@" || status=$?
    return "$status"
}

install_packages() {
    local packages=() extras=()
    have cc || packages+=(gcc libc6-dev)
    have make || packages+=(make)
    have git || packages+=(git)
    # The C library's tests.
    have c++ || packages+=(g++)
    have pkg-config || packages+=(pkg-config)
    # Optional; a test that is skipped without them prints that. They are a second compiler, CMake, the checker of
    # manual pages, the library of the example liburcu.c, a client and a rival of `uwork-lab serve`, and what the
    # tests of the bridge start: a server, and the maker of its certificates.
    have clang || extras+=(clang)
    have cmake || extras+=(cmake)
    have mandoc || extras+=(mandoc)
    have redis-cli && have redis-benchmark || extras+=(redis-tools)
    pkg-config --exists liburcu 2>/dev/null || extras+=(liburcu-dev)
    have redis-server || extras+=(redis-server)
    have openssl || extras+=(openssl)
    [ "${#packages[@]}" = 0 ] || {
        if is_root_with_apt; then
            install "${packages[@]}"
        else
            say_missing "${packages[*]}" "sudo apt-get install ${packages[*]}   (or your system's packages of these)"
        fi
    }
    [ "${#extras[@]}" = 0 ] || {
        if ! is_root_with_apt || ! install "${extras[@]}"; then
            echo "not installed, so some tests are left out: ${extras[*]}"
        fi
    }
}

rust_is_new_enough() {
    have cargo || return 1
    local found
    found=$(rustc --version 2>/dev/null | cut -d ' ' -f 2 | cut -d - -f 1)
    [ -n "$found" ] && printf '%s\n%s\n' "$rust_wanted" "$found" | sort --version-sort --check=quiet
}

install_rust() {
    rust_is_new_enough && return 0
    if have rustup; then
        echo "installing: Rust, stable channel, for this folder only"
        rustup toolchain install stable --profile minimal --component rustfmt --component clippy
        rustup override set stable
    fi
    rust_is_new_enough || say_missing "rustc and cargo $rust_wanted or newer" \
        "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c rustfmt -c clippy"
}

install_components() {
    have cargo || return 0
    local component
    for component in rustfmt clippy; do
        if "cargo-${component/rust/}" --version >/dev/null 2>&1; then
            continue
        fi
        if have rustup && rustup component add "$component"; then
            continue
        fi
        say_missing "$component" "rustup component add $component"
    done
}

install_packages
install_rust
install_components
if [ "$missing" = 1 ]; then
    echo "then run the same command again"
    exit 1
fi
cargo fetch --locked --quiet || {
    echo "cannot fetch the dependencies that Cargo.lock names: see above; if Cargo.lock is stale, run cargo check"
    exit 1
}
echo "$(rustc --version), $(cc --version | head -n 1), $(make --version | head -n 1), $(git --version)"
