#!/usr/bin/env bash
# Prepares the peers of `uwork-lab bench bridge` in target/peers: a Python environment, a folder of Node modules, a Go
# program. A peer whose tools are missing is named and left out. Versions, those of their dependencies included, are those
# of the lists beside this file.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

peers=${CARGO_TARGET_DIR:-target}/peers
mkdir -p "$peers" || exit 1
peers=$(cd "$peers" && pwd)
missing=0

# prepare NAME COMMAND...: runs the commands of a peer, and names it if they fail.
prepare() {
    local name=$1
    shift
    if "$@" >"$peers/$name.log" 2>&1; then
        echo "$name: ready"
    else
        echo "$name: left out, see $peers/$name.log"
        missing=1
    fi
}

python_peers() {
    python3 -m venv "$peers/venv" && "$peers/venv/bin/pip" install --quiet --requirement lab/peers/requirements.txt &&
        cp lab/peers/*.py "$peers"
}

node_peer() {
    cp lab/peers/package.json lab/peers/package-lock.json lab/peers/bullmq_peer.mjs "$peers" &&
        (cd "$peers" && npm ci --no-audit --no-fund)
}

go_peer() {
    (cd lab/peers/asynq && go build -o "$peers/asynq_peer" .)
}

prepare celery-rq python_peers
prepare bullmq node_peer
prepare asynq go_peer
exit "$missing"
