#!/usr/bin/env bash
# The test of ci/all.sh with steps of its own: whatever fails is named within the last 60 lines, and nothing is left
# running.
set -euo pipefail
cd "$(dirname "$0")/../.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/ci" "$place/bin" "$place/planted"
cp ci/all.sh ci/end-processes.sh "$place/ci"
# Each step does what its file in the folder `planted` says.
for step in deps fmt tidy clippy test doc package loom stress capi lab; do
    cat >"$place/ci/$step.sh" <<'END'
#!/usr/bin/env bash
step=$(basename "$0" .sh)
case "$step $*" in
    'test --storms only') step=storms ;;
    'deps --left-out') step=names-left-out ;;
esac
[ ! -e "planted/$step" ] || source "planted/$step"
END
    chmod +x "$place/ci/$step.sh"
done
printf '#!/bin/sh\n' >"$place/bin/cargo"
chmod +x "$place/bin/cargo"
cd "$place"
export PATH=$place/bin:$PATH CARGO_TARGET_DIR=$place/target FULL=1 CI=true
unset UWORK_LEFT_OUT UWORK_RUNNING_FILE

complain() {
    echo "ci/all.sh: $1:"
    cat text
    exit 1
}

# plant STEP...: what the steps do, from the standard input.
plant() {
    local step text
    text=$(cat)
    for step in "$@"; do echo "$text" >"planted/$step"; done
}

begin() {
    rm -rf planted target
    mkdir planted
    printf '# a list\nuwork/library::known # its cause\n' >ci/known-flakes.txt
}

# ends STATUS
ends() {
    local status=0
    bash ci/all.sh >text 2>&1 || status=$?
    [ "$status" = "$1" ] || complain "status $status instead of $1"
}

# ends_with LINE...: these are among the last 60 lines.
ends_with() {
    local line
    for line in "$@"; do
        grep -qxF -e "$line" <<<"$(tail -n 60 text)" || complain "the last 60 lines have no \"$line\""
    done
}

begin
ends 0
[[ $(tail -n 1 text) == all*ok ]] || complain "the last line is another one"

# A failure in each kind of suite, beside much other output.
begin
plant deps <<<'for ((n = 0; n < 30; n++)); do echo "left out, tool-$n is not installed: the test of it"; done'
plant test <<'END'
for ((n = 0; n < 500; n++)); do echo "test a::b$n ... ok"; done
echo "a panic in a child: FAILED to do it"
for name in uwork/library::a::b uwork/forks::hooks::a_child uwork/library::watchdog::hangs "uwork/x: after its last test: signal: 11"; do
    echo "FAILED: $name"
done
exit 1
END
plant capi <<'END'
for part in capi/plain/items kernel/address/later; do echo "FAILED: $part: exit code 1: items"; done
seq 100 # The end of their outputs.
exit 1
END
plant clippy <<<'printf "    Checking x\nerror: unused variable\n  --> src/x.rs\n"; exit 101'
plant tidy <<<'seq 100; echo "src/x.rs:3: a rule: its finding"; exit 1'
plant loom <<<'echo uwork-engine/lib::models::hangs >"$UWORK_RUNNING_FILE"; exit 124'
plant doc <<<'ln -s /nonexistent/verdict "$UWORK_STEP_LOGS/doc.verdict"'
plant fmt <<<'sleep 1000 & echo "left out, a test"'
plant package <<'END'
for ((n = 0; n < 10; n++)); do echo "flaky: uwork/library::flake$n"; done >>"$UWORK_FLAKY_FILE"
END
ends 1
ends_with 'test: FAILED: uwork/library::a::b' 'test: FAILED: uwork/forks::hooks::a_child' \
    'test: FAILED: uwork/library::watchdog::hangs' 'test: FAILED: uwork/x: after its last test: signal: 11' \
    'capi: FAILED: capi/plain/items: exit code 1: items' 'capi: FAILED: kernel/address/later: exit code 1: items' \
    'clippy: error: unused variable' 'tidy: src/x.rs:3: a rule: its finding' \
    'loom: was running: uwork-engine/lib::models::hangs' 'doc: FAILED: without a result' \
    'flaky: uwork/library::flake0 (not on the list)'
grep -q '^left out, tool-29 ' text || complain "what is left out is not named"
grep -q '^ends [0-9]*: sleep 1000' text || complain "a process that was left running is not named"

# A step with many failures, and then all steps with many.
begin
plant test <<<'for ((n = 0; n < 40; n++)); do echo "FAILED: uwork/library::a$n"; done; exit 1'
ends 1
ends_with '== what failed' 'test: FAILED: uwork/library::a0' 'test: FAILED: uwork/library::a28' \
    "test: and 11 more: $place/target/steps/test.log"
begin
steps=(fmt tidy clippy test doc package loom stress capi lab storms)
plant "${steps[@]}" <<'END'
for ((n = 0; n < 40; n++)); do echo "FAILED: $step-$n"; echo "left out, $step-$n"; done
for ((n = 0; n < 10; n++)); do echo "flaky: $step-$n"; done >>"$UWORK_FLAKY_FILE"
sleep 1000 &
exit 1
END
ends 1
ends_with '== what failed' '== summary' 'fmt: FAILED: fmt-0' 'storms: FAILED: storms-0'

# What each change needs, and with FULL=1 everything, also for the steps that are in both.
begin
plant clippy capi <<<'echo "quick: ${UWORK_QUICK:-no}"'
FULL='' ends 0
[ "$(grep -cx 'quick: 1' text)" = 2 ] || complain "the steps are not told to be quick"
! grep -qE '^(loom|stress|sanitizers|lab) ' text || complain "a step of FULL=1 has run"
begin
plant clippy capi <<<'echo "quick: ${UWORK_QUICK:-no}"'
UWORK_QUICK=1 ends 0
# `sanitizers` is ci/capi.sh, too.
[ "$(grep -cx 'quick: no' text)" = 3 ] || complain "steps of FULL=1 were quick"
[ "$(grep -cE '^(loom|stress|sanitizers|lab) .* ok$' text)" = 4 ] || complain "a step of FULL=1 has not run"

# With CI set, only what is missing may be left out.
begin
plant names-left-out <<<'echo chromium,perf'
plant test <<<'echo "CI=$CI UWORK_LEFT_OUT=$UWORK_LEFT_OUT"'
ends 0
grep -qx 'CI=true UWORK_LEFT_OUT=chromium,perf' text || complain "the steps are not told what is missing"

# Without the tools nothing else runs.
begin
plant deps <<<'echo "missing: rustc"; exit 1'
ends 1
ends_with 'deps: missing: rustc' 'test: not run'

# A flake is named, whether it is known or not.
begin
plant test <<<'printf "flaky: uwork/library::known\nflaky: uwork/library::new\n" >>"$UWORK_FLAKY_FILE"'
ends 0
ends_with 'flaky: uwork/library::known' 'flaky: uwork/library::new (not on the list)'

# Ctrl-C names what is running, and ends it.
begin
plant capi <<<'echo capi/plain/items >"$UWORK_RUNNING_FILE"; sleep 1000 & echo $! >pid; touch started; wait'
rm -f started
env --default-signal=INT bash ci/all.sh >text 2>&1 &
all=$!
until [ -e started ]; do
    kill -0 "$all" 2>/dev/null || complain "it has ended before its step has begun"
    sleep 0.1
done
kill -INT "$all"
status=0
wait "$all" || status=$?
[ "$status" = 130 ] || complain "status $status instead of 130"
ends_with 'was running: capi/plain/items' interrupted
[ -z "$(tr -d '\0' 2>/dev/null <"/proc/$(cat pid)/cmdline")" ] || complain "a process is left running"
echo "ci/all.sh: ok"
