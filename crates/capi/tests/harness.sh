# The common part of the test scripts of the C library (crates/capi/tests/run.sh and kernel/tests/run.sh), which source
# it. A script defines `programs HOW ROUNDS FLAGS...`, which builds and runs its test programs, and one function for
# each of its other parts; then it calls `run_parts FOLDER PART...`.
#
# Every script has the parts plain, debug (UWORK_DEBUG=objects), address and thread (the sanitizers).

capi=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kernel=$(cd "$capi/../../kernel" && pwd)
includes=(-I"$capi/include" -I"$kernel/include" -I"$kernel/include/uwork/kernel")
strict=(-Wall -Wextra -Wpedantic -Wconversion -Werror)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

cpus=$(nproc)
compilers=(gcc)
! command -v clang >/dev/null || compilers+=(clang)

# The C++ compiler that belongs to a C compiler.
plus_of() {
    local plus=${1/gcc/g++}
    echo "${plus/clang/clang++}"
}

say() { printf '  %-12s %s\n' "$1" "$2"; }

# run NAME COMMAND...: runs a command, and shows its output if it fails.
run() {
    local name=$1
    shift
    if ! timeout 300 "$@" >"$out/log" 2>&1; then
        say "$name" "FAILED: $*"
        tail -n 60 "$out/log"
        exit 1
    fi
}

# link NAME SOURCE FLAGS...: builds a test with the library; with the static one where the library
# is instrumented.
link() {
    local name=$1 source=$2
    shift 2
    "$cc" -O1 -g "${strict[@]}" "${includes[@]}" "$@" -o "$out/$name" "$source" "${libs[@]}"
}

# start_link NAME SOURCE FLAGS...: the same in the background, one job for each CPU.
start_link() {
    while [ "$(jobs -rp | wc -l)" -ge "$cpus" ]; do
        wait -n || exit 1
    done
    link "$@" &
}

# Waits for the background jobs.
finish_links() {
    while [ -n "$(jobs -p)" ]; do
        wait -n || exit 1
    done
}

# The thread sanitizer reports a race on purpose. Without this report its silence about the other tests means nothing.
race_is_found() {
    link race "$capi/tests/c/race.c" -std=gnu11 -fsanitize=thread
    if timeout 300 "$out/race" >"$out/log" 2>&1 || ! grep -q 'data race .*write_on_worker\|data race .*race.c' "$out/log"; then
        say thread "FAILED: a race on purpose is not reported"
        tail -n 20 "$out/log"
        exit 1
    fi
}

# run_parts FOLDER PART...: runs the parts with the library in that folder.
run_parts() {
    local library=$1 part
    shift
    local shared=(-L"$library" -luwork -Wl,-rpath,"$library")
    local static=("$library/libuwork.a" -lgcc_s -lpthread -lm -ldl)
    for part in "$@"; do
        # The modes of per-CPU locks.
        modes=${UWORK_PWLOCKS:-0 1 2}
        libs=("${shared[@]}")
        cc=gcc
        case $part in
            plain)
                for cc in "${compilers[@]}"; do
                    programs plain 200
                done
                ;;
            debug)
                export UWORK_DEBUG=objects
                programs debug 50
                unset UWORK_DEBUG
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
                race_is_found
                programs thread 50 -fsanitize=thread
                ;;
            *)
                if [ "$(type -t "${part//-/_}_part")" != function ]; then
                    echo "no such part: $part"
                    exit 2
                fi
                "${part//-/_}_part"
                ;;
        esac
    done
}
