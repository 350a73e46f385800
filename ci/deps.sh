#!/usr/bin/env bash
# Installs the missing tools to build and test uwork, or prints what is missing and how to install it. With --build: only
# those to build it, without optional ones. With --left-out, only prints what is missing without being needed, as
# UWORK_LEFT_OUT has it: with CI set, the tests that need these may be left out, and no others.
set -euo pipefail
builds_only=
case ${1:-} in
    '' | --left-out) ;;
    --build) builds_only=yes ;;
    *) echo "usage: ci/deps.sh [--build | --left-out]" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."

# The oldest compiler whose lints, tests and laboratory are known to work. Users need only rust-version (Cargo.toml).
rust_wanted=1.95
missing=0
lists=old

have() { command -v "$1" >/dev/null 2>&1; }

is_root_with_apt() { [ "$(id -u)" = 0 ] && have apt-get; }

# say_missing WHAT COMMAND
say_missing() {
    printf 'missing: %s\n  %s\n' "$1" "$2"
    missing=1
}

# retry COMMAND...: up to three times, because a network or an archive may be away for a moment. Shows why it failed.
retry() {
    local attempt
    for attempt in 1 2 3; do
        "$@" && return 0
        echo "attempt $attempt of 3 has failed: $*"
        [ "$attempt" = 3 ] || sleep $((attempt * attempt * ${DEPS_PAUSE_SECONDS:-4}))
    done
    return 1
}

# A mirror that does not answer ends an attempt after ten minutes at most, and another apt is waited for.
apt() {
    DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -q -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 \
        -o DPkg::Lock::Timeout=120 -o APT::Update::Error-Mode=any "$@"
}

# install PACKAGE...: installs from Debian's archive, without starting services.
install() {
    echo "installing: $*"
    retry apt update || { echo "the lists of packages cannot be fetched (see above)"; return 1; }
    lists=fetched
    # This policy prevents services from starting, unless the machine has a policy of its own.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    retry apt install -y --no-install-recommends "$@"
}

install_packages() {
    local packages=()
    have cc || packages+=(gcc libc6-dev)
    if [ -z "$builds_only" ]; then
        have make || packages+=(make)
        have git || packages+=(git)
        # The C library's tests.
        have c++ || packages+=(g++)
        have pkg-config || packages+=(pkg-config)
    fi
    [ "${#packages[@]}" != 0 ] || return 0
    if ! is_root_with_apt || ! install "${packages[@]}"; then
        say_missing "${packages[*]}" "sudo apt-get install ${packages[*]}   (or your system's packages of these)"
    fi
}

# Optional: package with further names that tests use for it, test for it, and what is left out without it.
readonly EXTRAS="\
clang|have clang|the C tests with a second compiler
cmake|have cmake|the example of CMake
mandoc|have mandoc|the check of the manual pages
valgrind|have valgrind|the C tests under memcheck
redis-tools redis-cli redis-benchmark|have redis-cli && have redis-benchmark|the tests of uwork-lab serve with foreign clients
liburcu-dev|pkg-config --exists liburcu|the example liburcu.c
redis-server|have redis-server|the tests of the bridge, and its examples
openssl|have openssl|the tests of the bridge with TLS
jq|have jq|the test of the output as JSON"

# The same for those that are named and not installed: they are large, or belong to the machine's kernel.
readonly NAMED="\
chromium|have chromium|the test of the report's page in a browser
bpftrace|have bpftrace|the test that bpftrace lists the probes
linux-perf perf|perf --version >/dev/null|the test that perf lists the probes"

# extras FORMAT LIST: prints the missing ones: `%s` is the package, and then what is left out, and all names.
extras() {
    local names test tests
    while IFS='|' read -r names test tests; do
        # shellcheck disable=SC2059 # The format is an argument.
        eval "$test" 2>/dev/null || printf "$1" "${names%% *}" "$tests" "$names"
    done <<<"$2"
}

has_fuse() { [ -w /dev/fuse ]; }
has_two_cpus() { [ "$(nproc)" != 1 ]; }

# Whether a test may have folders and processes of several users.
may_be_others() { [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; }

install_extras() {
    local missing
    mapfile -t missing < <(extras '%s\n%.0s%.0s' "$EXTRAS")
    [ "${#missing[@]}" != 0 ] || return 0
    if is_root_with_apt && ! install "${missing[@]}" && [ "$lists" = fetched ]; then
        # One that the archive lacks stops all of them.
        local package
        for package in "${missing[@]}"; do apt install -y --no-install-recommends "$package" || true; done
    fi
}

# Names everything that will not run, once for all steps. ci/all.sh reads these lines.
say_left_out() {
    extras 'left out, %s is not installed: %s\n%.0s' "$EXTRAS"
    extras 'left out, %s is not installed: %s\n%.0s' "$NAMED"
    may_be_others || echo "left out, this user is not root with CAP_SYS_ADMIN: the tests of several users"
    has_fuse || echo "left out, /dev/fuse cannot be opened: the test of a stranger's file system"
    has_two_cpus || echo "left out, this machine has one CPU: the tests that need two"
}

# The same by names, separated by commas, each of which is in the messages of the tests that are left out.
names_left_out() {
    {
        extras '%.0s%.0s%s\n' "$EXTRAS" | tr ' ' '\n'
        extras '%.0s%.0s%s\n' "$NAMED" | tr ' ' '\n'
        may_be_others || echo root
        has_fuse || echo /dev/fuse
        has_two_cpus || echo "one CPU"
    } | paste -sd,
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
        retry rustup toolchain install stable --profile minimal --component rustfmt --component clippy || true
        rustup override set stable || true
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
        if have rustup && retry rustup component add "$component"; then
            continue
        fi
        say_missing "$component" "rustup component add $component"
    done
}

if [ "${1:-}" = --left-out ]; then
    names_left_out
    exit
fi
install_packages
[ -n "$builds_only" ] || install_extras
install_rust
[ -n "$builds_only" ] || install_components
if [ "$missing" = 1 ]; then
    echo "then run the same command again"
    exit 1
fi
{ retry cargo fetch --locked --quiet &&
    { [ -z "${FULL:-}" ] || retry cargo fetch --locked --quiet --manifest-path lab/Cargo.toml; }; } || {
    echo "cannot fetch the dependencies that Cargo.lock names: see above; if that is stale, run cargo check"
    exit 1
}
echo "$(rustc --version), $(cc --version | head -n 1)"
[ -z "$builds_only" ] || exit 0
echo "$(make --version | head -n 1), $(git --version)"
say_left_out
