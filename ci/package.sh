#!/usr/bin/env bash
# The packages of the published crates, and that of the C library, are complete: licences, README, settings for docs.rs,
# the same files from a tree without git. With its default features uwork has at most 25 crates in its tree. With --build
# every package is built from its archive, files that are not committed are refused, and the order of publishing is
# printed. Nothing is uploaded. The package of the bridge's C library cannot be made (docs/decisions/0041-packages.md).
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TREE_MAX=25
unpublished=(uwork-bridge-capi xtask)

case ${1:-} in
    --build) flags=() ;;
    "") flags=(--offline --no-verify --allow-dirty) ;;
    *) echo "allowed is --build"; exit 2 ;;
esac

crates=$(cargo tree --locked --package uwork --edges normal,build --prefix none --format '{p}' | sed 's/ (\*)$//' | sort -u)
count=$(wc -l <<<"$crates")
[ "$count" -le "$TREE_MAX" ] || {
    printf 'uwork has %d crates in its tree, and %d are permitted:\n%s\n' "$count" "$TREE_MAX" "$crates"
    exit 1
}
echo "uwork with default features: $count crates of at most $TREE_MAX"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# Those of an earlier version would count below.
rm -f "$target"/package/*.crate
cargo package --quiet --locked --workspace "${unpublished[@]/#/--exclude=}" "${flags[@]}"

for package in "$target"/package/*.crate; do
    name=$(basename "$package" .crate)
    files=$'\n'$(tar -tzf "$package" | sed 's|^[^/]*/||')$'\n'
    for file in LICENSE-MIT LICENSE-APACHE README.md; do
        [[ $files == *$'\n'$file$'\n'* ]] || { echo "$name has no $file: FAILED"; exit 1; }
    done
    # What docs.rs would build: a command has no documentation, and the C library is not published.
    [[ $files == *$'\nsrc/lib.rs\n'* && $name != uwork-capi-* ]] || continue
    [[ $(tar -xzOf "$package" "$name/Cargo.toml") == *'[package.metadata.docs.rs]'* ]] || {
        echo "$name has no settings for docs.rs: FAILED"
        exit 1
    }
done
echo "licences, README and settings for docs.rs: ok"

if [ "${1:-}" = --build ]; then
    # Reads the registry's index, and uploads nothing. Leaves out what is not published by itself.
    echo "the order of publishing:"
    cargo publish --dry-run --no-verify --locked --workspace 2>&1 |
        sed -n 's/^ *Uploading \([^ ]*\) v\([^ ]*\).*/  \1 \2/p; /^error/,$p'
fi

# In an exported tree there is nothing to compare with.
git rev-parse --git-dir >/dev/null 2>&1 || exit 0

# files_of TARGET: the files of all packages, without cargo's note of the commit.
files_of() {
    local package
    for package in "$1"/package/*.crate; do tar -tzf "$package"; done | grep -v '/\.cargo_vcs_info\.json$' | LC_ALL=C sort
}
exported=$target/exported
trap 'rm -rf "$exported"' EXIT
rm -rf "$exported"
mkdir -p "$exported/tree"
# A list of files instead of the commit, so that files that are not committed are compared as well.
git ls-files -co --exclude-standard -z | tar -c --null --ignore-failed-read -T - | tar -x -C "$exported/tree"
# Their contents are those that were built above.
(cd "$exported/tree" && GIT_CEILING_DIRECTORIES=$target CARGO_TARGET_DIR=$exported/target \
    cargo package --quiet --offline --locked --workspace --no-verify "${unpublished[@]/#/--exclude=}")
diff <(files_of "$target") <(files_of "$exported/target") || {
    echo "packages of a tree without git have other files: FAILED"
    exit 1
}
echo "packages of a tree without git: the same files"
