#!/usr/bin/env bash
# Runs the example bridge.c, given as the argument, with a redis-server of its own; left out where that is missing.
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")"
if ! command -v redis-server >/dev/null; then
    [ -z "${CI:-}" ] || [[ ",${UWORK_LEFT_OUT:-}," == *,redis-server,* ]] ||
        { echo "bridge.c: FAILED: redis-server is not installed, and CI is set: run ci/deps.sh"; exit 1; }
    echo "left out: bridge.c, redis-server is not installed (ci/deps.sh)"
    exit 0
fi
source ../../crates/bridge-capi/tests/redis.sh
start_redis
said=$("$program" "$redis_url" 7 eight 9 2>&1) || { echo "bridge.c: FAILED: $said"; exit 1; }
for line in '7 squared is 49' '9 squared is 81' '2 done, 1 dead'; do
    grep -qx "$line" <<<"$said" || { echo "bridge.c: no line \"$line\" in: $said"; exit 1; }
done
grep -q 'after 1 attempt(s): the payload is not a number' <<<"$said"
echo "$said" | tail -n 1
