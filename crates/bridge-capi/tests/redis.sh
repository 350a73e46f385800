# A redis-server at a socket in a folder of its own, for scripts that source this file. It ends with the script or, if a
# subshell sources this file, with the subshell; also if that is killed, where setpriv is installed.

redis_pid=
dies_with_shell=(setpriv --pdeathsig KILL)
command -v setpriv >/dev/null || dies_with_shell=()
redis_folder=$(mktemp -d)
trap 'stop_redis; rm -rf "$redis_folder"' EXIT

# start_redis OPTION...: sets redis_url. There is no port that another process could own.
start_redis() {
    "${dies_with_shell[@]}" redis-server --port 0 --unixsocket "$redis_folder/socket" --save "" --dir "$redis_folder" \
        --pidfile "$redis_folder/pid" --logfile "$redis_folder/log" "$@" &
    redis_pid=$!
    until grep -qi 'ready to accept connections' "$redis_folder/log" 2>/dev/null; do
        kill -0 "$redis_pid" 2>/dev/null || {
            echo "redis-server does not start: $(tail -n 1 "$redis_folder/log")"
            exit 1
        }
        sleep 0.05
    done
    redis_url=unix://$redis_folder/socket
}

stop_redis() {
    [ -z "$redis_pid" ] || { kill -9 "$redis_pid" && wait "$redis_pid"; } 2>/dev/null || true
    redis_pid=
    rm -f "$redis_folder/log"
}
