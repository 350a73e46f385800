#!/usr/bin/env bash
# The test of harness.sh with programs of its own: which are repeated, what is kept of their outputs, and what an ended
# script leaves behind.
set -euo pipefail
unset UWORK_FAILURES UWORK_NO_REPEAT
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export UWORK_STEP_LOGS=$out/logs UWORK_FLAKY_FILE=$out/flaky UWORK_RUNNING_FILE=$out/now place=$out

# The guard, which is late to say what the threads of an ended program were doing.
cat >"$out/guard" <<'END'
#!/usr/bin/env bash
trap 'sleep 1; echo "the guard has ended"; exit 143' TERM
"$real_guard" "$@"
END
chmod +x "$out/guard"

# A suite whose part `planted` builds and runs $place/program.c.
cat >"$out/suite.sh" <<END
set -euo pipefail
suite=test
source "$here/harness.sh"
export real_guard=\$guard
guard=\$place/guard
planted_part() {
    libs=()
    start_link planted/program "\$place/program.c"
    finish_links
    run planted/program "\$out/program"
}
run_parts none planted
END

# program CODE: what the program does.
program() {
    printf '#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n' >"$out/program.c"
    # shellcheck disable=SC2028 # The escapes are C.
    echo "static void touch(const char *name) { FILE *file = fopen(name, \"w\"); if (file) fclose(file); }
        int main(void) { $1 }" >>"$out/program.c"
    rm -rf "$out/logs" "$out/flaky" "$out/now" "$out/seen"
}
readonly FAILS_ONCE="if (access(\"$out/seen\", F_OK) == 0) return 0; touch(\"$out/seen\");
    for (int i = 0; i < 40; i++) { printf(\"line %d\\n\", i); }"

# ends STATUS: the suite ends with this status.
ends() {
    local status=0
    bash "$out/suite.sh" >"$out/text" 2>&1 || status=$?
    [ "$status" = "$1" ] || complain "status $status instead of $1"
}

complain() {
    echo "$1"
    cat "$out/text"
    exit 1
}

# has FILE TEXT...: the file has these lines.
has() {
    local file=$1 text
    shift
    for text in "$@"; do
        grep -qx -e "$text" "$file" || complain "no line \"$text\" in $file"
    done
}

program "$FAILS_ONCE return 3;"
ends 0
has "$out/flaky" 'flaky: test/planted/program'
has "$out/logs/test-planted-program.first.log" 'line 0' 'line 39'
[ -e "$out/logs/test-planted-program.second.log" ] || complain "the second output is not kept"

# By a function in a header.
echo 'static pid_t begin(void) { return fork(); }' >"$out/begin.h"
program "$FAILS_ONCE pid_t child = begin(); return child ? 3 : 0;"
sed -i '/unistd/a #include "begin.h"' "$out/program.c"
ends 1
[ ! -e "$out/flaky" ] || complain "a program that forks in a header was repeated"

# The end of the output is listed, and all of it is kept.
program "$FAILS_ONCE pid_t child = fork(); return child ? 3 : 0;"
ends 1
[ ! -e "$out/flaky" ] || complain "a program that forks was repeated"
has "$out/text" 'FAILED: test/planted/program: exit code 3: program' ' *line 39' \
    " *the whole output: $out/logs/test-planted-program.log"
! grep -q 'line 2$' "$out/text" || complain "all of the output is listed"
has "$out/logs/test-planted-program.log" 'line 0' 'line 39'
[ -z "$(cat "$out/now")" ] || complain "something is running at the end: $(cat "$out/now")"

# An ended script names the program that was running, and keeps its output.
program "setbuf(stdout, NULL); puts(\"it has begun\"); touch(\"$out/seen\"); for (;;) pause();"
setsid bash "$out/suite.sh" >"$out/text" 2>&1 &
suite=$!
until [ -e "$out/seen" ]; do
    kill -0 "$suite" 2>/dev/null || complain "the suite has ended before its program has begun"
    sleep 0.1
done
has "$out/now" test/planted/program
# As `timeout` does: to all processes of the script.
kill -TERM -- "-$suite"
! wait "$suite" || complain "an ended script was successful"
has "$out/now" test/planted/program
has "$out/logs/test-planted-program.log" 'it has begun'
grep -q 'still running when the tests were ended' "$out/logs/test-planted-program.log" ||
    complain "what the guard says about the program is not kept"
has "$out/logs/test-planted-program.log" 'the guard has ended'
