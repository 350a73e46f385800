#!/usr/bin/env bash
# Builds libuwork.a and libuwork.so into target/libuwork. Arguments: a profile (release, dev), the folder, and the name
# of the library: libuwork, or libuwork-bridge, which has the bridge to Redis servers as well. With UWORK_SANITIZE=address
# or thread, instruments the library (needs RUSTC_BOOTSTRAP, which is set here).
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${1:-release}
target=${CARGO_TARGET_DIR:-target}
sanitize=${UWORK_SANITIZE:-}
out=${2:-$target/libuwork${sanitize:+-$sanitize}}
name=${3:-libuwork}
case $name in
    libuwork) package=uwork-capi maps=(crates/capi/uwork.map) ;;
    libuwork-bridge) package=uwork-bridge-capi maps=(crates/capi/uwork.map crates/bridge-capi/uwork-bridge.map) ;;
    *) echo "no such library: $name; allowed are libuwork, libuwork-bridge"; exit 2 ;;
esac
# Every build script that uses cc-rs, and this script, get this C compiler.
cc=${CC:-cc}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
major=${version%%.*}
folder=$profile
[ "$profile" != dev ] || folder=debug

mkdir -p "$out"
cargo_flags=(--package "$package" --profile "$profile" --crate-type staticlib)
link_flags=("${maps[@]/#/-Wl,--version-script=}")
if [ -n "$sanitize" ]; then
    # A folder of its own, because the flag changes every crate. The target is named explicitly, because otherwise build
    # scripts and macros would be instrumented too.
    host=$(rustc -vV | sed -n 's/^host: //p')
    export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$target/sanitize-$sanitize"
    export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=$sanitize -Cunsafe-allow-abi-mismatch=sanitizer -Cforce-frame-pointers=yes"
    export CFLAGS="${CFLAGS:-} -fsanitize=$sanitize -fno-omit-frame-pointer"
    cargo_flags+=(--target "$host")
    link_flags+=("-fsanitize=$sanitize")
    folder="$host/$folder"
fi
cargo rustc "${cargo_flags[@]}" ${UWORK_CARGO_FLAGS:-}
archive=${CARGO_TARGET_DIR:-target}/$folder/lib${package//-/_}.a
cp "$archive" "$out/$name.a"

# Links the parts of the archive that the version script exports and their dependencies. The library must not be
# unloaded: its threads run in it, and the kernel holds addresses in it (rseq).
"$cc" -shared -o "$out/$name.so.$version" "${link_flags[@]}" \
    -Wl,-soname,"$name.so.$major" \
    -Wl,--whole-archive "$out/$name.a" -Wl,--no-whole-archive \
    -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,-z,nodelete -Wl,--as-needed \
    -lpthread -ldl -lm -lgcc_s -lc
ln -sf "$name.so.$version" "$out/$name.so.$major"
ln -sf "$name.so.$major" "$out/$name.so"
echo "$out/$name.a, $out/$name.so.$version"
