#!/usr/bin/env bash
# Builds Debian packages for this machine's architecture into target/deb: libuwork0 (the library), libuwork-dev (headers,
# static library, manual pages of sections 3 and 7) and uwork (the command). Needs no git. DEBFULLNAME and DEBEMAIL name
# the maintainer. The same sources and compiler give the same files: times are those of the version's entry in
# CHANGELOG.md, and the paths of the checkout and of cargo's home do not appear.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in dpkg-deb dpkg-shlibdeps; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: sudo apt-get install dpkg-dev"; exit 1; }
done

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
major=${version%%.*}
arch=$(dpkg --print-architecture)
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer="${DEBFULLNAME:-uwork maintainers} <${DEBEMAIL:-maintainers@uwork.invalid}>"
released=$(sed -n "s/^## \[$version\] - \(.*\)$/\1/p" CHANGELOG.md)
[ -n "$released" ] || { echo "CHANGELOG.md has no line: ## [$version] - YEAR-MONTH-DAY"; exit 1; }
SOURCE_DATE_EPOCH=$(date --utc --date "$released" +%s)
export SOURCE_DATE_EPOCH

target=${CARGO_TARGET_DIR:-target}
out=$target/deb
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
stage=$out/stage

# Objects with other flags are kept apart from those of a plain release build.
cargo_home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
export CARGO_TARGET_DIR=$target/deb-build
export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=/uwork --remap-path-prefix=$cargo_home=/cargo"
export CFLAGS="${CFLAGS:-} -ffile-prefix-map=$PWD=/uwork"
UWORK_PACKAGE=1 PREFIX=/usr LIBDIR=$libdir DESTDIR=$stage ci/install.sh

# move PACKAGE PATH...: moves staged files to a package.
move() {
    local package=$out/$1 path
    shift
    for path in "$@"; do
        mkdir -p "$package$(dirname "$path")"
        mv "$stage$path" "$package$path"
    done
}

# The pages of a section, compressed, with their links.
compress_pages() {
    local page
    for page in "$1"/*; do
        if [ -L "$page" ]; then
            ln -s "$(readlink "$page").gz" "$page.gz" && rm "$page"
        else
            gzip -9n "$page"
        fi
    done
}

for section in 1 3 7; do
    compress_pages "$stage/usr/share/man/man$section"
done
# Debian's folder for completions of packages.
mkdir -p "$stage/usr/share/zsh"
mv "$stage/usr/share/zsh/site-functions" "$stage/usr/share/zsh/vendor-completions"
strip --strip-debug "$stage/usr/bin/uwork"
# Libraries are not executable.
chmod 644 "$stage$libdir/libuwork.so.$version"

move "libuwork$major" "$libdir/libuwork.so.$version" "$libdir/libuwork.so.$major"
move libuwork-dev "$libdir"/{libuwork.so,libuwork.a,pkgconfig,cmake} /usr/include /usr/share/man/man{3,7}
move uwork /usr/bin /usr/share/man/man1 /usr/share/{bash-completion,zsh,fish}
left=$(find "$stage" ! -type d)
[ -z "$left" ] || { printf 'installed, and in no package:\n%s\n' "$left"; exit 1; }

# system_needs PACKAGE FILE: the dependencies of a program or library on packages of the system.
system_needs() {
    mkdir -p "$out/needs/debian"
    printf 'Source: uwork\n\nPackage: %s\nArchitecture: any\n' "$1" >"$out/needs/debian/control"
    (cd "$out/needs" && dpkg-shlibdeps -O "$2" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

# documents PACKAGE: its licence and changelog.
documents() {
    local folder=$out/$1/usr/share/doc/$1
    mkdir -p "$folder"
    sed "s/@YEAR@/${released%%-*}/" ci/deb/copyright >"$folder/copyright"
    {
        printf 'uwork (%s) unstable; urgency=medium\n\n  * New version: see CHANGELOG.md in the sources.\n\n' "$version"
        printf ' -- %s  %s\n' "$maintainer" "$(date --utc --date "$released" --rfc-email)"
    } | gzip -9n >"$folder/changelog.gz"
}

# pack PACKAGE SECTION DEPENDS: builds a package. Its description is in ci/deb.
pack() {
    local root=$out/$1
    documents "$1"
    mkdir -p "$root/DEBIAN" "$root/usr/share/lintian/overrides"
    # Symbols name the functions in dumps and reports.
    sed "s/@PACKAGE@/$1/" ci/deb/lintian-overrides >"$root/usr/share/lintian/overrides/$1"
    {
        printf 'Package: %s\nSource: uwork\nVersion: %s\nArchitecture: %s\n' "$1" "$version" "$arch"
        [ "$1" = uwork ] || printf 'Multi-Arch: same\n'
        printf 'Maintainer: %s\nInstalled-Size: %s\n' "$maintainer" "$(du -k -s --apparent-size "$root/usr" | cut -f 1)"
        printf 'Depends: %s\nSection: %s\nPriority: optional\n' "$3" "$2"
        cat "ci/deb/${1%"$major"}.description"
    } >"$root/DEBIAN/control"
    (cd "$root" && find usr -type f -print0 | LC_ALL=C sort --zero-terminated | xargs --null md5sum >DEBIAN/md5sums)
    if [ "$1" = "libuwork$major" ]; then
        printf 'libuwork %s %s (>= %s)\n' "$major" "$1" "$version" >"$root/DEBIAN/shlibs"
        printf 'activate-noawait ldconfig\n' >"$root/DEBIAN/triggers"
    fi
    find "$root" -type d -exec chmod 755 {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/${1}_${version}_$arch.deb"
    rm -r "$root"
}

needed_by_library=$(system_needs "libuwork$major" "$out/libuwork$major$libdir/libuwork.so.$version")
needed_by_command=$(system_needs uwork "$out/uwork/usr/bin/uwork")
pack "libuwork$major" libs "$needed_by_library"
pack libuwork-dev libdevel "libuwork$major (= $version)"
pack uwork utils "$needed_by_command"
rm -r "$stage" "$out/needs"
