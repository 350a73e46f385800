#!/usr/bin/env bash
# The test of ci/flaky.sh with suites of its own: its table has the rounds and the failures of each kind.
set -euo pipefail
cd "$(dirname "$0")/../.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/ci"
cp ci/flaky.sh ci/end-processes.sh "$place/ci"
# The suite `rust` fails in its first run beside busy loops, and in each run with two test threads.
cat >"$place/ci/suite.sh" <<'END'
#!/usr/bin/env bash
[ "$1" != --build ] || exit 0
case "$1 ${RUST_TEST_THREADS:-}" in
    'rust 2') echo 'FAILED: uwork/library::a::b'; exit 1 ;;
    'rust '*)
        [ ! -e seen ] || exit 0
        touch seen
        echo 'FAILED: uwork/library::a::b: its reason'
        exit 1
        ;;
esac
END
chmod +x "$place/ci/suite.sh"
cd "$place"
export CARGO_TARGET_DIR=$place/target
unset RUST_TEST_THREADS

complain() {
    echo "ci/flaky.sh: $1:"
    cat text
    exit 1
}

# A run that was interrupted has fewer rounds of its last kind: these are counted for each kind.
status=0
ci/flaky.sh 2 busy2 rust doc >text 2>&1 || status=$?
[ "$status" = 1 ] || complain "status $status instead of 1"
grep -qE '^busy2 +rust +2 +1 ' text || complain "the suite rust has not failed in one of two rounds"
grep -qE '^busy2 +doc +2 +0 ' text || complain "the suite doc has failed"
grep -qE '^uwork/library::a::b +busy2 +2 +1$' text || complain "the test has not failed once in two rounds"

cat >>ci/suite.sh <<'END'
# The second round of the second kind does not end by itself.
[ "$1 ${RUST_TEST_THREADS:-}" != 'doc 2' ] || { [ ! -e once ] || { touch started; sleep 1000; }; touch once; }
END
env --default-signal=INT ci/flaky.sh 3 busy2 threads2 rust doc >text 2>&1 &
flaky=$!
until [ -e started ]; do
    kill -0 "$flaky" 2>/dev/null || complain "it has ended before its last round has begun"
    sleep 0.1
done
kill -INT "$flaky"
! wait "$flaky" || complain "an interrupted run is successful"
grep -qE '^busy2 +doc +3 +0 ' text || complain "the first kind has not had three rounds"
grep -qE '^uwork/library::a::b +threads2 +2 +2$' text || complain "the second kind has not had two rounds"
[ "$(tail -n 1 text)" = interrupted ] || complain "it is not interrupted"
echo "ci/flaky.sh: ok"
