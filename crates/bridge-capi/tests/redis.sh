# A redis-server on a free port of the loopback interface, for scripts that source this file. It ends with the script or,
# if a subshell sources this file, with the subshell.

redis_pid=
redis_folder=$(mktemp -d)
trap 'stop_redis; rm -rf "$redis_folder"' EXIT

# start_redis: sets redis_url. A port may be taken; then the server ends, and the next one is tried.
start_redis() {
    local port
    for port in $(shuf -i 20000-32000 -n 20); do
        redis-server --port "$port" --bind 127.0.0.1 --save "" --dir "$redis_folder" \
            --pidfile "$redis_folder/pid" --logfile "$redis_folder/log" &
        redis_pid=$!
        until grep -q 'Ready to accept connections' "$redis_folder/log" 2>/dev/null; do
            kill -0 "$redis_pid" 2>/dev/null || continue 2
            sleep 0.05
        done
        redis_url=redis://127.0.0.1:$port
        return
    done
    echo "redis-server does not start: $(tail -n 1 "$redis_folder/log")"
    exit 1
}

stop_redis() {
    [ -z "$redis_pid" ] || { kill -9 "$redis_pid" && wait "$redis_pid"; } 2>/dev/null || true
    redis_pid=
    rm -f "$redis_folder/log"
}
