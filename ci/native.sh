#!/usr/bin/env bash
# Installs the thread pools that are not written in Rust, and builds the laboratory with them as rivals.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ pkg-config libtbb-dev libasio-dev libglib2.0-dev libuv1-dev)
install=(apt-get install -y --no-install-recommends)

# Asio is headers only, and has no pkg-config file.
has_asio() { echo '#include <asio/version.hpp>' | c++ -E -x c++ - >/dev/null 2>&1; }
is_complete() { command -v c++ >/dev/null && has_asio && pkg-config --exists tbb glib-2.0 libuv 2>/dev/null; }

if ! is_complete; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "missing: ${packages[*]}"
        echo "  sudo ${install[*]} ${packages[*]}   (or your system's packages of these)"
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    # Missing in some releases of Debian, and optional.
    ! apt-cache show libdispatch-dev >/dev/null 2>&1 || packages+=(libdispatch-dev)
    "${install[@]}" "${packages[@]}"
fi
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target} cargo build --release --manifest-path lab/Cargo.toml --package uwork-lab --features native
