#!/usr/bin/env bash
# Opens the page of `uwork report` in headless Chromium: light, dark, and as wide as a phone. Fails on an error of the
# console, and if the section of a benchmark has other charts than its records call for. Leaves screenshots beside the
# page.
#
# usage: ci/report.sh PAGE.html [BENCH.json...]; without files: those in the page's folder
set -euo pipefail
cd "$(dirname "$0")/.."

page=${1:?usage: ci/report.sh PAGE.html [BENCH.json...]}
page=$(realpath "$page")
shift
[ $# -gt 0 ] || set -- "$(dirname "$page")"/*.json
out=${page%.html}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Chromium as root has no sandbox. It reads nothing but the page.
common=(--headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" --enable-logging=stderr)

if ! command -v chromium >/dev/null || ! command -v jq >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "missing: chromium or jq"
        echo "  sudo apt-get install chromium jq   (or your system's packages of these)"
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    apt-get install -y --no-install-recommends chromium fonts-dejavu-core jq
fi

# open NAME URL FLAG...: takes a screenshot, and fails on an error of the console.
open() {
    local name=$1 url=$2
    shift 2
    timeout 120 chromium "${common[@]}" "$@" --screenshot="$out-$name.png" "$url" 2>"$scratch/log" || {
        tail -n 20 "$scratch/log"
        echo "report: chromium FAILED for $name"
        exit 1
    }
    if grep CONSOLE "$scratch/log"; then
        echo "report: FAILED: the console has errors ($name)"
        exit 1
    fi
    [ -s "$out-$name.png" ] || { echo "report: FAILED: no screenshot ($name)"; exit 1; }
}

timeout 120 chromium "${common[@]}" --dump-dom "file://$page" >"$scratch/dom" 2>"$scratch/log"
! grep CONSOLE "$scratch/log" || { echo "report: FAILED: the console has errors"; exit 1; }
# The number of charts of each benchmark, by the records alone: bars for each case, a curve for each kind of percentiles
# of which there are several, and one for a number of producers that varies.
expected=$(jq -rs '
    [.[] | arrays | .[] | select(type == "object" and has("metric"))] | group_by(.bench)[]
    | [.[0].bench, (group_by(.case) | map(
        1 + (if ([.[].producers | numbers] | unique | length) > 1 then 1 else 0 end)
        + ([.[].metric | select(contains("_p")) | capture("^(?<kind>.*?)_p(?<percent>[^_]*)")]
            | group_by(.kind) | map(select((map(.percent) | unique | length) > 1)) | length)) | add)]
    | @tsv' "$@")
[ -n "$expected" ] || { echo "report: FAILED: no figures in $*"; exit 1; }
count=0
while read -r bench wanted; do
    charts=$(sed 's/<section/\n&/g; s/<figure/\n&/g' "$scratch/dom" | awk -v id="id=\"$bench\"" '
        /^<section/ { inside = index($0, id) > 0 }
        inside && /^<figure class="chart/ { n++ }
        END { print n + 0 }')
    [ "$charts" = "$wanted" ] || { echo "report: FAILED: $charts charts of $bench, not $wanted"; exit 1; }
    count=$((count + charts))
done <<<"$expected"

# A window is never narrower than 500 points, so the phone is a frame.
printf '<!doctype html><body style="margin:0"><iframe src="file://%s" style="width:390px;height:2600px;border:0"></iframe>' \
    "$page" >"$scratch/phone.html"
open light "file://$page" --window-size=1280,3200
open dark "file://$page" --window-size=1280,3200 --force-dark-mode
open phone "file://$scratch/phone.html" --window-size=500,2600 --allow-file-access-from-files
echo "report: $count charts of $(wc -l <<<"$expected") benchmarks, no error of the console; $out-light.png, $out-dark.png, $out-phone.png"
