#!/usr/bin/env bash
# Builds the C library, optimized, and installs it: libraries, headers, pkg-config and CMake files, man pages.
# PREFIX (default /usr/local) is where it will be used, DESTDIR what is put in front of that for now.
# UWORK_PROFILE=dev installs one that is built faster.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}$prefix
profile=${UWORK_PROFILE:-release}
target=${CARGO_TARGET_DIR:-target}
capi=crates/capi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
major=${version%%.*}
major_minor=${version%.*}

# fill FILE: with what is not known before.
fill() { sed -e "s/@VERSION@/$version/; s/@MAJOR@/$major/; s/@MAJOR_MINOR@/$major_minor/" "$1"; }

ci/libuwork.sh "$profile" "$target/libuwork-$profile" >/dev/null
built=$target/libuwork-$profile

install -d "$root"/{include/uwork/kernel,lib/pkgconfig,lib/cmake/uwork,share/man/man3,share/man/man7}
install -m 644 $capi/include/uwork.h $capi/include/uwork.hpp "$root/include"
install -m 644 $capi/include/uwork/kernel/*.h "$root/include/uwork/kernel"
for folder in $(cd $capi/include/uwork/kernel && find linux asm -type d); do
    install -d "$root/include/uwork/kernel/$folder"
    install -m 644 "$capi/include/uwork/kernel/$folder"/*.h "$root/include/uwork/kernel/$folder"
done

install -m 644 "$built/libuwork.a" "$root/lib/libuwork.a"
install -m 755 "$built/libuwork.so.$version" "$root/lib/libuwork.so.$version"
# Names stay: uwork_dump and the watchdog show functions by them.
strip --strip-debug "$root/lib/libuwork.a" "$root/lib/libuwork.so.$version"
ln -sf "libuwork.so.$version" "$root/lib/libuwork.so.$major"
ln -sf "libuwork.so.$major" "$root/lib/libuwork.so"

fill $capi/packaging/uwork.pc.in >"$root/lib/pkgconfig/uwork.pc"
fill $capi/packaging/uwork-kernel.pc.in >"$root/lib/pkgconfig/uwork-kernel.pc"
for file in uworkConfig.cmake uworkConfigVersion.cmake; do
    fill "$capi/packaging/$file" >"$root/lib/cmake/uwork/$file"
done

install -m 644 $capi/man/*.3 "$root/share/man/man3"
install -m 644 $capi/man/*.7 "$root/share/man/man7"
# Each function by its own name.
for page in $capi/man/*.3; do
    for name in $(sed -n 's/^\.Nm \(uw_[a-z_]*\).*/\1/p' "$page"); do
        file=$(basename "$page")
        [ "$name.3" = "$file" ] || ln -sf "$file" "$root/share/man/man3/$name.3"
    done
done

# The examples look here where pkg-config knows nothing of uwork.
mkdir -p target
realpath "$root/lib/pkgconfig" >target/installed-pkgconfig
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" = 0 ]; then
    ldconfig || echo "ldconfig failed: programs may not find $root/lib/libuwork.so.$major"
fi
echo "installed uwork $version below $root"
