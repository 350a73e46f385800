#!/usr/bin/env bash
# What the first `uwork doctor` says about a program that is stuck, on a machine with load. Each kind of stuck.c and of
# crates/uwork/examples/stuck.rs, with symbols and stripped, is started and looked at ROUNDS times beside BURNERS busy
# loops. Prints how often the function and the stack were there, and the time that doctor took. Fails if one was not named.
#
#     lab/stuck/run.sh [ROUNDS [BURNERS]]        20 and 100
#
# UWORK: another command, such as that of a release build. KINDS, PROGRAMS: some of the kinds and programs. SHOW=1: prints
# what was said. AS: a user; root runs the programs and the commands with its rights.
#
# Needs cargo, a C compiler (CC) and strip, and no root. Without root, doctor keeps its own niceness and has a short slice
# of CPU time alone, so that it takes longer beside busy loops. Without jq, the JSON of a dump is not read.
set -euo pipefail
cd "$(dirname "$0")/../.."

rounds=${1:-20}
burners=${2:-100}
target=${CARGO_TARGET_DIR:-target}
uwork=${UWORK:-$target/debug/uwork}
kinds=${KINDS:-loop locks flush own call limit}
programs=${PROGRAMS:-rust rust-stripped c c-stripped}

out=$(mktemp -d)
export XDG_RUNTIME_DIR=$out
started=()
finish() {
    [ -z "${stuck:-}" ] || kill -KILL "$stuck" 2>/dev/null || true
    exec 7>&-
    [ ${#started[@]} = 0 ] || kill -KILL "${started[@]}" 2>/dev/null || true
    rm -rf "$out"
}
trap finish EXIT

as=()
[ -z "${AS:-}" ] || as=(setpriv --reuid "$AS" --regid "$(id -g "$AS")" --clear-groups)
[ -n "${UWORK:-}" ] || cargo build --quiet --package uwork-cli
if [[ $programs == *rust* ]]; then
    cargo build --quiet --package uwork --example stuck
    cp "$target/debug/examples/stuck" "$out/rust"
fi
if [[ " $programs" == *" c"* ]]; then
    ci/libuwork.sh dev "$target/libuwork-dev" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
    "${CC:-cc}" -O1 -g -Wall -Wextra -Werror -Icrates/capi/include lab/stuck/stuck.c "$target/libuwork-dev/libuwork.a" \
        -o "$out/c" -lpthread -ldl -lm -lgcc_s
fi
for program in rust c; do
    [ ! -e "$out/$program" ] || strip -o "$out/$program-stripped" "$out/$program"
done

if [ -n "${AS:-}" ]; then
    # The folder of the build may be closed to the user.
    cp "$uwork" "$out/command"
    uwork=$out/command
    chown "$AS" "$out"
fi

# What the text about a kind must have: a function of the program on the stack, or, without symbols, a call of the
# system's library or the raw frames of the program's file.
expected() {
    case $2:$1 in
        *-stripped:loop) echo "running, in .* 0 0x" ;;
        *-stripped:*) echo "in .* 0 0x[0-9a-f]+ .*[a-z].* [2-9] 0x" ;;
        *:loop) echo "running, in (stuck::)?spins_for_ever.* [01] 0x[0-9a-f]+ (stuck::)?spins_for_ever" ;;
        *:locks) echo "[0-9]+ 0x[0-9a-f]+ (stuck::)?takes_both_locks" ;;
        *:flush) echo "deadlock: item.*[0-9]+ 0x[0-9a-f]+ (stuck::)?flushes_the_other_queue|[0-9]+ 0x[0-9a-f]+ (stuck::)?flushes_the_other_queue.*deadlock: item" ;;
        *:own) echo "[0-9]+ 0x[0-9a-f]+ (stuck::)?waits_for_a_flush_of_its_queue" ;;
        *:call) echo "[0-9]+ 0x[0-9a-f]+ (stuck::)?reads_from_a_pipe" ;;
        rust:limit) echo "max_active 2 are taken.*[0-9]+ 0x[0-9a-f]+ (stuck::)?waits_for_a_message" ;;
        c:limit) echo "max_active 2 are taken.*[0-9]+ 0x[0-9a-f]+ reads_from_a_pipe" ;;
    esac
}

is_named() { tr '\n' ' ' <"$out/said" | grep -qE "$(expected "$1" "$2")"; }

# The commands beside doctor name a function of C that no other file can see, too. A command that got no answer in its
# time, beside other programs, looks again.
views_name_it() {
    local command look function=spins_for_ever
    for command in "dump $1" "dump --stacks $1" "dump --json $1" "top -i 0.05 $1"; do
        for ((look = 0; look < 20; look++)); do
            ! "${as[@]}" "$uwork" $command >"$out/view" 2>"$out/error" || break
        done
        grep -q "$function" "$out/view" && finds_by_jq "$command" "$function" || {
            cat "$out/error" "$out/view"
            echo "uwork $command: $function is not named" >&2
            return 1
        }
    done
}

# Whether jq finds the function as well, where the command prints JSON.
finds_by_jq() {
    [[ $1 == *--json* ]] && command -v jq >/dev/null || return 0
    [ "$(jq -r '.pools[].workers[].running | select(.queue == "stuck") | .function.name' "$out/view")" = "$2" ]
}

burn() { [ "$burners" = 0 ] || kill "-$1" "${started[@]}"; }

for ((n = 0; n < burners; n++)); do
    bash -c 'while :; do :; done' &
    started+=($!)
    # No message at its end.
    disown
done
# The last ones may not have begun.
[ "$burners" = 0 ] || sleep 2

failed=0
mkfifo "$out/in" "$out/idle"
printf '%-14s %-6s %9s %9s   %s\n' program kind named 'in 2 s' 'seconds: least, median, 90 %, most'
for program in $programs; do
    for kind in $kinds; do
        named=0 times=()
        for ((round = 0; round < rounds; round++)); do
            # The start is not what is measured.
            burn STOP
            "${as[@]}" "$out/$program" "$kind" <"$out/in" >"$out/pid" &
            stuck=$!
            exec 7>"$out/in"
            for ((turn = 0; turn < 2400; turn++)); do
                [ ! -s "$out/pid" ] || break
                sleep 0.05
            done
            [ -s "$out/pid" ] || { echo "$program $kind: not stuck after two minutes" >&2; exit 1; }
            burn CONT
            # Without a new process, which would wait for a CPU. Nothing is written to the pipe.
            [ "$burners" = 0 ] || read -r -t 0.5 <>"$out/idle" || true
            begin=${EPOCHREALTIME/[.,]/}
            "${as[@]}" "$uwork" doctor "$stuck" >"$out/said" 2>&1 || true
            # Without a load of its own this checks what is said. Other programs may have taken the CPUs.
            for ((look = 1; look < 5 && burners == 0; look++)); do
                ! is_named "$kind" "$program" || break
                begin=${EPOCHREALTIME/[.,]/}
                "${as[@]}" "$uwork" doctor "$stuck" >"$out/said" 2>&1 || true
            done
            times+=($(((${EPOCHREALTIME/[.,]/} - begin) / 1000)))
            burn STOP
            if is_named "$kind" "$program"; then
                named=$((named + 1))
            else
                echo "$program $kind: not named in:"
                cat "$out/said"
            fi
            [ "$program:$kind:$round" != c:loop:0 ] || views_name_it "$stuck" || failed=1
            if [ -n "${SHOW:-}" ]; then
                cat "$out/said"
            fi
            exec 7>&-
            kill -KILL "$stuck" 2>/dev/null || true
            wait "$stuck" 2>/dev/null || true
            rm -f "$out/pid"
        done
        [ "$named" = "$rounds" ] || failed=1
        mapfile -t times < <(printf '%s\n' "${times[@]}" | sort -n)
        at() { awk -v ms="${times[$((($rounds - 1) * $1 / 100))]}" 'BEGIN { printf "%.2f", ms / 1000 }'; }
        in_time=$(printf '%s\n' "${times[@]}" | awk '$1 <= 2000' | wc -l)
        printf '%-14s %-6s %3d of %2d %3d of %2d   %s  %s  %s  %s\n' "$program" "$kind" "$named" "$rounds" "$in_time" "$rounds" \
            "$(at 0)" "$(at 50)" "$(at 90)" "$(at 100)"
    done
done
exit "$failed"
