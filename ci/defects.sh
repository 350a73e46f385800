#!/usr/bin/env bash
# Shows that the tests find defects: plants each of ci/defects/*.patch in a copy of the tree, and runs the commands that
# its lines "Found by:" name. Each must succeed without the defect, and fail with it, with the text of "Says:" in its
# output. Takes more than an hour, and is not part of make test.
#
# usage: ci/defects.sh [NAME...]     these defects, or all
#        ci/defects.sh --tree NAME   plants one, to measure it, and prints the folder of the copy
#        ci/defects.sh --check       only shows that each patch applies to the tree
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

root=$PWD
out=${CARGO_TARGET_DIR:-target}/defects
out=$(mkdir -p "$out" && cd "$out" && pwd)
tree=$out/tree
# Otherwise git would take the copy for a folder of this repository.
export GIT_CEILING_DIRECTORIES=$out

copy_tree() {
    rm -rf "$tree"
    mkdir "$tree"
    git ls-files -co --exclude-standard -z | tar -c --null --ignore-failed-read -T - | tar -x -C "$tree"
}

# patches [NAME...]: the files of these defects, or of all.
patches() {
    local name
    [ $# != 0 ] || { echo ci/defects/*.patch; return; }
    for name in "$@"; do
        [ -e "ci/defects/$name.patch" ] || { echo "no such defect: $name; ci/defects has all" >&2; return 2; }
        echo "ci/defects/$name.patch"
    done
}

# plant FILE [OPTION...]
plant() { (cd "$tree" && git apply "${@:2}" "$root/$1"); }

# run_in_copy COMMAND LOG
run_in_copy() { (cd "$tree" && CARGO_TARGET_DIR=$out/target bash -c "$1") </dev/null >"$2" 2>&1; }

declare -A sound=()
# succeeds COMMAND: whether it does without a defect. Runs it once.
succeeds() {
    if [ -z "${sound[$1]:-}" ]; then
        sound[$1]=no
        run_in_copy "$1" "$log" && sound[$1]=yes
    fi
    [ "${sound[$1]}" = yes ]
}

# finds COMMAND TEXT: runs it in the copy. Sets `result`.
finds() {
    local began=$SECONDS status=0
    run_in_copy "$1" "$log" || status=$?
    if grep -q 'could not compile' "$log"; then
        result="does not build"
    elif [ "$status" = 0 ]; then
        result="not found"
    elif ! grep -qF -- "$2" "$log"; then
        result="not found: the output lacks '$2'"
    else
        result="found, $((SECONDS - began)) s"
    fi
}

case ${1:-} in
    --check)
        status=0
        for patch in ci/defects/*.patch; do
            git apply --check "$patch" || { echo "$patch does not apply: plant its defect anew"; status=1; }
        done
        exit "$status"
        ;;
    --tree)
        patch=$(patches "${2:?usage: ci/defects.sh --tree NAME}") || exit
        copy_tree && plant "$patch" || exit 1
        echo "$tree"
        exit
        ;;
    -*) echo "allowed are --check, --tree NAME, and names of defects"; exit 2 ;;
esac

chosen=$(patches "$@") || exit
copy_tree || exit 1
failed=0
printf '| defect | found by | result |\n|---|---|---|\n'
for patch in $chosen; do
    name=$(basename "$patch" .patch)
    text=$(sed -n 's/^Says: //p' "$patch")
    log=$out/$name.log
    while read -r command; do
        if succeeds "$command"; then
            plant "$patch" || { failed=1; continue; }
            finds "$command" "${text:-FAILED}"
            plant "$patch" --reverse || exit 1
        else
            result="fails without the defect"
        fi
        [[ $result == found,* ]] || failed=1
        printf '| `%s` | `%s` | %s |\n' "$name" "$command" "$result"
    done < <(sed -n 's/^Found by: //p' "$patch")
done
exit "$failed"
