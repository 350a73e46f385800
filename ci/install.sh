#!/usr/bin/env bash
# Builds the C library and the command uwork, optimized, and installs libraries, headers, pkg-config and CMake files, the
# command with its completions, and man pages.
# PREFIX (default /usr/local) is the final location, LIBDIR (default PREFIX/lib) that of the libraries, and DESTDIR a
# prefix of both for this installation. BRIDGE=1 also installs libuwork-bridge, which has the bridge to Redis servers and
# takes minutes to build. UWORK_PROFILE=dev installs what builds faster. With UWORK_PACKAGE set, the tree is
# for a package (ci/deb.sh): the examples do not use it.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
root=${DESTDIR:-}$prefix
lib=${DESTDIR:-}$libdir
prefix_from_libdir=$(realpath -m --relative-to="$libdir" "$prefix")
profile=${UWORK_PROFILE:-release}
target=${CARGO_TARGET_DIR:-target}
capi=crates/capi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
major=${version%%.*}
major_minor=${version%.*}

# As in a kernel build, only on 64-bit machines.
config_64bit=
[[ $(${CC:-cc} -dM -E -x c /dev/null) != *__LP64__* ]] || config_64bit=-DCONFIG_64BIT=1

# fill FILE: replaces the placeholders of a template.
fill() { sed -e "s/@VERSION@/$version/; s/@MAJOR@/$major/; s/@MAJOR_MINOR@/$major_minor/; s|@PREFIX_FROM_LIBDIR@|$prefix_from_libdir|; s/@CONFIG_64BIT@/$config_64bit/" "$1"; }

ci/libuwork.sh "$profile" "$target/libuwork-$profile" >/dev/null
built=$target/libuwork-$profile

install -d "$root"/{include/uwork/kernel,share/man/man3,share/man/man7} "$lib"/{pkgconfig,cmake/uwork}
install -m 644 $capi/include/uwork.h $capi/include/uwork.hpp "$root/include"
install -m 644 kernel/include/uwork/kernel/*.h "$root/include/uwork/kernel"
for folder in $(cd kernel/include/uwork/kernel && find linux asm -type d); do
    install -d "$root/include/uwork/kernel/$folder"
    install -m 644 "kernel/include/uwork/kernel/$folder"/*.h "$root/include/uwork/kernel/$folder"
done

# install_library NAME: the static and the shared library.
install_library() {
    local name=$1
    install -m 644 "$built/$name.a" "$lib/$name.a"
    install -m 755 "$built/$name.so.$version" "$lib/$name.so.$version"
    # Function names are not stripped, because uwork_dump and the watchdog show them.
    strip --strip-debug "$lib/$name.a" "$lib/$name.so.$version"
    ln -sf "$name.so.$version" "$lib/$name.so.$major"
    ln -sf "$name.so.$major" "$lib/$name.so"
}

install_library libuwork
pages=($capi/man/*.3)
if [ -n "${BRIDGE:-}" ]; then
    bridge=crates/bridge-capi
    ci/libuwork.sh "$profile" "$built" libuwork-bridge >/dev/null
    install_library libuwork-bridge
    install -m 644 $bridge/include/uwork-bridge.h "$root/include"
    fill $bridge/packaging/uwork-bridge.pc.in >"$lib/pkgconfig/uwork-bridge.pc"
    pages+=($bridge/man/*.3)
fi

fill $capi/packaging/uwork.pc.in >"$lib/pkgconfig/uwork.pc"
fill kernel/packaging/uwork-kernel.pc.in >"$lib/pkgconfig/uwork-kernel.pc"
for file in uworkConfig.cmake uworkConfigVersion.cmake; do
    fill "$capi/packaging/$file" >"$lib/cmake/uwork/$file"
done

install -m 644 "${pages[@]}" "$root/share/man/man3"
install -m 644 $capi/man/*.7 kernel/man/*.7 "$root/share/man/man7"
# One link for each function, so that `man FUNCTION` works.
for page in "${pages[@]}"; do
    for name in $(sed -n 's/^\.Nm \(uw_[a-z_]*\).*/\1/p' "$page"); do
        file=$(basename "$page")
        [ "$name.3" = "$file" ] || ln -sf "$file" "$root/share/man/man3/$name.3"
    done
done

# The command. Its pages and completions come from the definitions of its flags.
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
cargo build --profile "$profile" --package uwork-cli
command=$target/$folder/uwork
install -d "$root/bin" "$root/share/man/man1" "$root/share"/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
install -m 755 "$command" "$root/bin/uwork"
"$command" man --all "$root/share/man/man1"
"$command" completions bash >"$root/share/bash-completion/completions/uwork"
"$command" completions zsh >"$root/share/zsh/site-functions/_uwork"
"$command" completions fish >"$root/share/fish/vendor_completions.d/uwork.fish"

if [ -z "${UWORK_PACKAGE:-}" ]; then
    # The examples look here if pkg-config does not know uwork.
    mkdir -p target
    realpath "$lib/pkgconfig" >target/installed-pkgconfig
fi
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" = 0 ]; then
    ldconfig || echo "ldconfig failed: programs may not find $lib/libuwork.so.$major"
fi
echo "installed uwork $version below $root"
