#!/usr/bin/env bash
# Checks that the ABI of the C library is unchanged: the exported symbols with their versions, and sizes, offsets and
# numbers; and that the library has its USDT probes. To record an intended change: ci/abi.sh --write
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
library=${UWORK_LIBRARY:-$target/libuwork-dev}
capi=crates/capi
now=$(mktemp -d)
trap 'rm -rf "$now"' EXIT

[ -e "$library/libuwork.so" ] || ci/libuwork.sh dev "$library" >/dev/null
nm --dynamic --defined-only --format=posix "$library/libuwork.so" | cut -d ' ' -f 1,2 | sort >"$now/symbols.txt"
cc -I$capi/include -Ikernel/include/uwork/kernel -o "$now/layout" $capi/abi/layout.c -L"$library" -luwork
LD_LIBRARY_PATH=$library "$now/layout" >"$now/layout.txt"

if [ "${1:-}" = --write ]; then
    cp "$now"/*.txt $capi/abi
    exit 0
fi
status=0
readelf --dynamic --wide "$library/libuwork.so" | grep -q NODELETE || { echo "libuwork.so can be unloaded"; status=1; }
for list in symbols layout; do
    diff -u "$capi/abi/$list.txt" "$now/$list.txt" || status=1
done

# Tracing tools find the kernel's tracepoints by these notes.
notes=$(readelf --notes --wide "$library/libuwork.so")
for name in queue_work activate_work execute_start execute_end; do
    grep -q "Name: workqueue_$name\$" <<<"$notes" || { echo "libuwork.so has no probe workqueue_$name"; status=1; }
done

# The header and the library have the same functions, and each function is in a manual page.
header() { sed 's|/\*.*\*/||; /\/\*/,/\*\//d' $capi/include/uwork.h | grep -o '\buw_[a-z0-9_]*(' | tr -d '(' | grep -v '^uw_to_' | sort -u; }
diff <(header) <(sed -n 's/^\(uw_[a-z0-9_]*\)@@.*/\1/p' "$now/symbols.txt" | grep -v '^uw_kernel_' | sort -u) || {
    echo "uwork.h (<) and libuwork.so (>) have different functions"
    status=1
}
for name in $(header); do
    grep -q "\.Fn \"\?$name\b\|\.Fo $name\b" $capi/man/*.3 || { echo "$name is in no manual page"; status=1; }
done
[ "$status" = 0 ] || { echo "abi: FAILED; if the change is intended: ci/abi.sh --write, and a new version in uwork.map"; exit 1; }
echo "abi: $(wc -l <"$now/symbols.txt") symbols, $(wc -l <"$now/layout.txt") sizes, offsets and numbers: ok"
