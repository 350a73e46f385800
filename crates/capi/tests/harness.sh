# The common part of the test scripts of the C library (crates/capi/tests/run.sh, crates/bridge-capi/tests/run.sh and
# kernel/tests/run.sh), which set `suite` and source it. A script defines `programs HOW ROUNDS FLAGS...`, which builds and
# runs its test programs, and one function for each of its other parts; then it calls `run_parts FOLDER PART...`.
#
# Every script has the parts plain, debug (UWORK_DEBUG=objects), address and thread (the sanitizers).
#
# A failure stops neither the other programs nor the other parts: all failures are listed at the end. A program that has
# failed runs once more, alone, unless it forks. If it passes then, the run goes on, and the program's name is appended
# to the file UWORK_FLAKY_FILE. UWORK_NO_REPEAT=1: nothing runs twice.
#
# A script that is ended leaves the name of the running program in the file UWORK_RUNNING_FILE, and keeps its output.

capi=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kernel=$(cd "$capi/../../kernel" && pwd)
includes=(-I"$capi/include" -I"$kernel/include" -I"$kernel/include/uwork/kernel")
strict=(-Wall -Wextra -Wpedantic -Wconversion -Werror)
out=$(mktemp -d)
source "$capi/tests/failures.sh"
trap 'rm -rf "$out"' EXIT
# After the guard, which is ended too and says what the program's threads were doing.
trap 'trap "" TERM INT; [ ! -s "$out/log" ] || keep_output "$(was_running)" "$out/log"; exit 143' TERM INT
guard=$out/guard
gcc -O1 "${strict[@]}" -o "$guard" "$capi/tests/guard.c"

cpus=$(nproc)
compilers=(gcc)
# make test without FULL=1 uses one compiler.
[ -n "${UWORK_QUICK:-}" ] || ! command -v clang >/dev/null || compilers+=(clang)

# The C++ compiler that belongs to a C compiler.
plus_of() {
    local plus=${1/gcc/g++}
    echo "${plus/clang/clang++}"
}

say() { printf '  %-12s %s\n' "$1" "$2"; }

# attempt LOG COMMAND...: runs a program under the guard, which ends it if it hangs, or a function.
attempt() {
    local log=$1 guarded=("$guard")
    shift
    [ "$(type -t "$1")" != function ] || guarded=()
    "${guarded[@]}" "$@" >"$log" 2>&1
}

# reason STATUS: why a program has failed.
reason() {
    case $1 in
        124) echo "timeout: it hangs" ;;
        *) echo "exit code $1" ;;
    esac
}

# keep_flaky NAME: records that a program failed and then passed.
keep_flaky() {
    local kept_output time
    for time in second first; do keep_output "$1.$time" "$out/$time.log"; done
    say flaky "$1 failed, and passed when it ran again: $kept_output"
    [ -z "${UWORK_FLAKY_FILE:-}" ] || echo "flaky: $1" >>"$UWORK_FLAKY_FILE"
}

# run NAME COMMAND...: runs a test program, whose output is then in $out/log. NAME is a part and the program, for example
# plain/items. A program that was not built is left out: that failure is known.
run() {
    local name=$suite/$1 outer
    shift
    case $1 in
        "$out"/*) [ -e "$1" ] || return 0 ;;
    esac
    outer=$(was_running)
    now_running "$name"
    judge "$name" "$@"
    now_running "$outer"
}

# may_repeat COMMAND...: never a program that forks. Forked children are right or wrong.
may_repeat() {
    local word
    [ "${UWORK_NO_REPEAT:-}" != 1 ] || return 1
    for word in "$@"; do
        [ ! -e "$word.forks" ] || return 1
    done
}

# judge NAME COMMAND...: runs it, and once more if it fails and may be repeated. Keeps a failure.
judge() {
    local name=$1 status=0 command
    shift
    attempt "$out/log" "$@" || status=$?
    [ "$status" != 0 ] || return 0
    if may_repeat "$@"; then
        say "$name" "failed ($(reason "$status")), and runs once more, alone"
        cp "$out/log" "$out/first.log"
        finish_links
        if attempt "$out/log" "$@"; then
            cp "$out/log" "$out/second.log"
            keep_flaky "$name"
            return 0
        fi
        # The first output belongs to the undisturbed failure.
        mv "$out/first.log" "$out/log"
    fi
    command=$*
    failed "$name" "$(reason "$status"): ${command//"$out/"/}" "$out/log"
}

# link OUTPUT SOURCE FLAGS...: builds a test with the library; with the static one where the library
# is instrumented.
link() {
    local output=$1 source=$2 used built
    shift 2
    # The part `debug` runs what `plain` has built.
    built=$out/built-$({ echo "$cc" "$@" "${libs[@]}" && cat "$source"; } | md5sum | cut -d ' ' -f 1)
    [ -e "$built" ] ||
        "$cc" -O1 -g "${strict[@]}" "${includes[@]}" "$@" -MMD -MF "$built.d" -o "$built" "$source" "${libs[@]}" || return
    ln -f "$built" "$out/$output"
    # For may_repeat: the source, or a header that it includes, forks.
    used=$(sed -e 's/^[^ ]*://' -e 's/\\$//' "$built.d")
    # shellcheck disable=SC2086 # Paths without spaces.
    ! grep -qE '(return |[=?] |if \()fork\(\)' $used || : >"$out/$output.forks"
}

# link_or_fail NAME SOURCE FLAGS...: builds the program of `run NAME` as the last part of NAME, and keeps a failure.
link_or_fail() {
    local name=$suite/$1 output=${1##*/} log
    shift
    log=$out/link-$output.log
    rm -f "$out/$output"
    link "$output" "$@" >"$log" 2>&1 || failed "$name" "it was not built" "$log"
}

# start_link NAME SOURCE FLAGS...: the same in the background, one job for each CPU.
links=()
start_link() {
    while [ "$(jobs -rp | wc -l)" -ge "$cpus" ]; do
        wait -n || true
    done
    link_or_fail "$@" &
    links+=($!)
}

# Waits for the background jobs.
finish_links() {
    [ ${#links[@]} = 0 ] || wait "${links[@]}" || true
    links=()
}

# A race on purpose: fails unless the thread sanitizer reports it. Without this report its silence about the other tests
# means nothing.
race_is_found() {
    local status=0
    "$guard" "$out/race" || status=$?
    [ "$status" != 0 ] && grep -q 'data race .*write_on_worker\|data race .*race.c' "$out/log"
}

# run_part PART: one part, with the library in $library.
run_part() {
    local part=$1
    local shared=(-L"$library" -luwork -Wl,-rpath,"$library")
    local static=("$library/libuwork.a" -lgcc_s -lpthread -lm -ldl)
    # The modes of per-CPU locks.
    modes=${UWORK_PWLOCKS:-0 1 2}
    libs=("${shared[@]}")
    cc=gcc
    case $part in
        plain)
            programs plain 200
            for cc in "${compilers[@]:1}"; do
                programs "plain-$cc" 200
            done
            ;;
        debug)
            export UWORK_DEBUG=objects
            programs debug 50
            ;;
        address)
            libs=("${static[@]}")
            programs address 50 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
            ;;
        thread)
            gcc -O1 -ffreestanding -fno-tree-loop-distribute-patterns -c -o "$out/names.o" "$capi/tests/tsan_names.c"
            # The sanitizer does not see locks that are taken in a restartable sequence.
            modes=1
            libs=("$out/names.o" "${static[@]}")
            export TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 history_size=7 ${TSAN_OPTIONS:-}"
            link race "$capi/tests/c/race.c" -std=gnu11 -fsanitize=thread
            run thread/race race_is_found
            programs thread 50 -fsanitize=thread
            ;;
        *) "${part//-/_}_part" ;;
    esac
}

# run_parts FOLDER PART...: runs the parts with the library in that folder, also after a failure.
run_parts() {
    library=$1
    local part
    shift
    for part in "$@"; do
        case $part in
            plain | debug | address | thread) ;;
            *)
                [ "$(type -t "${part//-/_}_part")" = function ] || {
                    echo "no such part: $part"
                    exit 2
                }
                ;;
        esac
    done
    for part in "$@"; do
        part "$suite/$part" "$out/part.log" run_part "$part"
    done
    report_failures
}
