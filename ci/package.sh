#!/usr/bin/env bash
# Every crate that is published builds from its package, in the order of publishing, and so does the C library's. With
# its default features uwork has at most 25 crates in its tree. Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TREE_MAX=25
unpublished=(uwork-example-axum uwork-lab uwork-rivals uwork-serve xtask)

crates=$(cargo tree --locked --package uwork --edges normal,build --prefix none --format '{p}' | sed 's/ (\*)$//' | sort -u)
count=$(wc -l <<<"$crates")
[ "$count" -le "$TREE_MAX" ] || {
    printf 'uwork has %d crates in its tree, and %d are permitted:\n%s\n' "$count" "$TREE_MAX" "$crates"
    exit 1
}
echo "uwork with default features: $count crates of at most $TREE_MAX"

# Refuses files that are not committed; --allow-dirty takes them.
cargo package --locked --workspace "${unpublished[@]/#/--exclude=}" "$@"
