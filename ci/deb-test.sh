#!/usr/bin/env bash
# Tests the packages of ci/deb.sh: lintian has nothing to say, the dependencies are complete in a root that has only
# Debian's packages, and there the examples in C and the command work. A second build, which finds no git checkout, gives the same files. Needs root,
# mmdebstrap and lintian; the root is made in target/deb-root, from the sources of this machine's apt.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in mmdebstrap lintian; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: sudo apt-get install mmdebstrap lintian"; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "only root can make a root folder with packages and enter it"; exit 1; }

target=${CARGO_TARGET_DIR:-target}
root=$target/deb-root
for sources in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
    [ ! -s "$sources" ] || break
done
release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)

ci/deb.sh
first=$(cd "$target/deb" && sha256sum -- *.deb)
# Only the staged tree is made again, as without a git checkout: the compiler's own reproducibility is not the subject.
GIT_DIR=/nonexistent ci/deb.sh >/dev/null
[ "$first" = "$(cd "$target/deb" && sha256sum -- *.deb)" ] || { echo "a second build differs: FAILED"; exit 1; }

# The tags that remain are explained in the overrides of each package.
lintian --fail-on error,warning "$target"/deb/*.deb

rm -rf --one-file-system "$root"
mmdebstrap --quiet --variant=minbase --include=gcc,g++,libc6-dev,make,pkg-config "$release" "$root" "$sources"
trap 'rm -rf --one-file-system "$root"' EXIT
cp "$target"/deb/*.deb "$root/tmp"
cp -r examples/c "$root/tmp/c"
cp -r kernel/examples "$root/tmp/kernel"
chroot "$root" /bin/sh -euxc '
    # The order shows that only the dependencies of the packages are needed.
    dpkg --install /tmp/libuwork0_*.deb
    dpkg --install /tmp/libuwork-dev_*.deb /tmp/uwork_*.deb
    make -s -C /tmp/c clean test
    make -s -C /tmp/kernel clean test
    uwork --version
    uwork topology | grep -q "^machine"
    test -s /usr/share/zsh/vendor-completions/_uwork
    dpkg --listfiles uwork | grep -q "man1/uwork-doctor.1.gz"
    # A link of a function to its page.
    zcat /usr/share/man/man3/uw_work_flush.3.gz | grep -q uw_work_flush
    dpkg --verify libuwork0 libuwork-dev uwork
    dpkg --purge libuwork-dev uwork libuwork0
    test ! -e /usr/include/uwork.h
'
echo "installed into a root of $release, used there, and removed"
