#!/usr/bin/env bash
# Runs the tests of per-CPU data, of task work, and of queues on many CPUs in a virtual machine with isolated CPUs and
# CPUs that go offline, and shows that no thread of uwork ran on an isolated CPU.
# Arguments: x86_64 (16 CPUs, 2 nodes) or aarch64 (8 CPUs), both by default. qemu emulates the CPUs without KVM, which
# is
# slow. Not part of make test; docs/reliability.md has the results.
#
#   VM_SLOW          slowdown of the virtual machine compared with a real machine, for the tests' time limits (10)
#   VM_TEST_SECONDS  maximum duration of a test (1800), VM_BOOT_SECONDS of the boot (600)
#   VM_ONLY          runs only the tests whose names contain this text: VM_ONLY=task_
set -euo pipefail
cd "$(dirname "$0")/.."

readonly slow=${VM_SLOW:-10} test_seconds=${VM_TEST_SECONDS:-1800} boot_seconds=${VM_BOOT_SECONDS:-600}
# A hanging test ends after `test_seconds`; this limit is for a machine that hangs as a whole.
readonly run_seconds=$((8 * test_seconds))
readonly target=${CARGO_TARGET_DIR:-target}

have() { command -v "$1" >/dev/null 2>&1; }

# Debian's name for an architecture.
debian_of() { [ "$1" = x86_64 ] && echo amd64 || echo arm64; }

install_tools() {
    local arch=$1 packages=()
    have "qemu-system-$arch" || packages+=("qemu-system-$([ "$arch" = x86_64 ] && echo x86 || echo arm)")
    have "$arch-linux-gnu-gcc" || packages+=("gcc-${arch/_/-}-linux-gnu")
    # The C library of a foreign architecture is only recommended by its compiler.
    [ "$arch" = "$(uname -m)" ] || [ -e "/usr/$arch-linux-gnu/lib/crti.o" ] ||
        packages+=("libc6-dev-$(debian_of "$arch")-cross")
    have cpio || packages+=(cpio)
    have readelf || packages+=(binutils)
    if [ "${#packages[@]}" != 0 ]; then
        local install="apt-get install -y --no-install-recommends ${packages[*]}"
        if [ "$(id -u)" != 0 ] || ! have apt-get; then
            echo "vm: missing: ${packages[*]}"
            echo "  sudo $install   (or your system's packages of these)"
            exit 1
        fi
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q
        $install
    fi
    [ -d "$(rustc --print target-libdir --target "$arch-unknown-linux-gnu")" ] ||
        rustup target add "$arch-unknown-linux-gnu" || {
        echo "vm: missing: Rust's standard library for $arch-unknown-linux-gnu"
        exit 1
    }
}

# fetch ARCH FOLDER: unpacks Debian's kernel and busybox there without installing them. apt uses separate package lists,
# because those of the machine are for its own architecture.
fetch() {
    local debian
    debian=$(debian_of "$1")
    local folder=$2
    [ ! -e "$folder/fetched" ] || return 0
    have apt-get || {
        echo "vm: missing: apt-get, to fetch Debian's linux-image-cloud-$debian and busybox-static for $debian"
        exit 1
    }
    rm -rf "$folder"
    mkdir -p "$folder"/lists/partial "$folder"/cache/archives/partial
    local apt=(-q -o "Dir::State=$folder" -o "Dir::State::lists=$folder/lists" -o Dir::State::status=/dev/null
        -o "Dir::Cache=$folder/cache" -o "APT::Architecture=$debian" -o "APT::Architectures=$debian"
        -o APT::Sandbox::User=)
    apt-get "${apt[@]}" update
    local kernel
    kernel=$(apt-cache "${apt[@]}" depends "linux-image-cloud-$debian" |
        sed -n 's/ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
    [ -n "$kernel" ] || { echo "vm: missing: linux-image-cloud-$debian in apt's sources"; exit 1; }
    (cd "$folder" && apt-get "${apt[@]}" download "$kernel" busybox-static)
    local package
    for package in "$folder"/*.deb; do
        dpkg-deb -x "$package" "$folder/unpacked"
    done
    mv "$folder"/unpacked/boot/vmlinuz-* "$folder/kernel"
    mv "$folder/unpacked/bin/busybox" "$folder/busybox"
    rm -rf "$folder"/{unpacked,lists,cache,*.deb}
    touch "$folder/fetched"
}

# build ARCH ROOT: builds the test binaries for the architecture, and the commands if it is the machine's own.
build() {
    local triple=$1-unknown-linux-gnu root=$2 variable kind name binary
    variable=${triple^^}
    export "CARGO_TARGET_${variable//-/_}_LINKER=$1-linux-gnu-gcc" UWORK_TEST_SLOW=$slow
    local built=(cargo test --no-run --message-format=json --target "$triple")
    "${built[@]}" --package uwork --lib --test '*' >"$root/../artifacts"
    "${built[@]}" --package uwork-linux --package uwork-percpu --lib >>"$root/../artifacts"
    "${built[@]}" --package uwork-policy --test rules >>"$root/../artifacts"
    while read -r kind name binary; do
        [ "$kind" = test ] || name=unit_$name
        cp "$binary" "$root/tests/$name"
    done < <(sed -n 's/.*"kind":\["\([a-z]*\)".*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*/\1 \2 \3/p' \
        "$root/../artifacts")
    if [ "$1" = "$(uname -m)" ]; then
        cargo build --package uwork-cli
        CARGO_TARGET_DIR=$target cargo build --manifest-path lab/Cargo.toml --package uwork-lab
        cp "$target/debug/uwork" "$target/debug/uwork-lab" "$root/tests"
    fi
    # One test needs the line tables of the standard library for stacks.
    find "$root/tests" -type f ! -name 'unit_*' -exec "$1-linux-gnu-strip" --strip-debug {} +
}

# add_libraries ARCH ROOT: copies the shared libraries of the programs there, with their dependencies.
add_libraries() {
    local compiler=$1-linux-gnu-gcc root=$2 file name found
    local left=("$root"/tests/*)
    while [ "${#left[@]}" != 0 ]; do
        file=${left[0]}
        left=("${left[@]:1}")
        for name in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
            [ ! -e "$root/lib/$name" ] || continue
            found=$("$compiler" -print-file-name="$name")
            cp -L "$found" "$root/lib/$name"
            left+=("$root/lib/$name")
        done
    done
    ln -s lib "$root/lib64"
}

pack() {
    local arch=$1 folder=$2 root=$2/root
    rm -rf "$root"
    mkdir -p "$root"/{bin,lib,tests,dev,proc,sys,tmp,run}
    build "$arch" "$root"
    add_libraries "$arch" "$root"
    cp "$folder/busybox" "$root/bin/busybox"
    cp ci/vm/init "$root/init"
    cp ci/vm/isolation "$root/bin/isolation"
    chmod +x "$root/init" "$root/bin/isolation"
    (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) >"$folder/initramfs"
}

# The machines. The upper half of the CPUs is isolated. The kernel parameters prevent a busy host from being taken for a
# broken timer or a stall.
machine_of() {
    local common="panic=-1 nowatchdog mitigations=off rcupdate.rcu_cpu_stall_suppress=1 loglevel=4"
    common+=" vm.test_seconds=$test_seconds ${VM_ONLY:+vm.only=$VM_ONLY}"
    case $1 in
        x86_64)
            qemu=(qemu-system-x86_64 -M q35 -cpu max -smp 16,sockets=2,cores=8 -m 4G
                -object memory-backend-ram,id=m0,size=2G -object memory-backend-ram,id=m1,size=2G
                -numa node,nodeid=0,cpus=0-7,memdev=m0 -numa node,nodeid=1,cpus=8-15,memdev=m1
                -append "console=ttyS0 no_timer_check isolcpus=8-15 nohz_full=8-15 $common")
            ;;
        aarch64)
            qemu=(qemu-system-aarch64 -M virt,gic-version=max -cpu max -smp 8,sockets=2,cores=4 -m 3G
                -append "console=ttyAMA0 isolcpus=4-7 nohz_full=4-7 $common")
            ;;
    esac
    qemu+=(-accel tcg,thread=multi -display none -monitor none -serial stdio -nic none -no-reboot)
}

machine=
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null' EXIT

# wait_for SECONDS LOG PATTERN: waits until the log contains the pattern, or the machine has ended.
wait_for() {
    local deadline=$((SECONDS + $1))
    until grep -q "$3" "$2"; do
        kill -0 "$machine" 2>/dev/null || return 1
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 1
    done
}

run() {
    local arch=$1 folder=$2 log=$2/console qemu
    machine_of "$arch"
    : >"$log"
    "${qemu[@]}" -kernel "$folder/kernel" -initrd "$folder/initramfs" </dev/null >"$log" 2>&1 &
    machine=$!
    local verdict=
    wait_for "$boot_seconds" "$log" '^vm: up' || verdict="did not come up, within $boot_seconds s at most"
    [ -n "$verdict" ] || wait_for "$run_seconds" "$log" '^vm: over' || verdict="did not get to the end"
    kill "$machine" 2>/dev/null || true
    wait "$machine" || true
    machine=
    tr -d '\r' <"$log" | if [ -n "$verdict" ]; then tail -n 40; else sed -n '/^vm: up/,$p'; fi
    [ -n "$verdict" ] || grep -q '^vm: over, 0 failed' "$log" || verdict="tests have failed"
    echo "vm: $arch: ${verdict:-ok} (console: $log)"
    [ -z "$verdict" ]
}

[ $# != 0 ] || set -- x86_64 aarch64
status=0
for arch in "$@"; do
    case $arch in
        x86_64 | aarch64) ;;
        *) echo "vm: $arch: x86_64 and aarch64 are allowed"; exit 2 ;;
    esac
    mkdir -p "$target/vm"
    folder=$(cd "$target/vm" && pwd)/$arch
    install_tools "$arch"
    fetch "$arch" "$folder"
    pack "$arch" "$folder"
    run "$arch" "$folder" || status=1
done
exit "$status"
