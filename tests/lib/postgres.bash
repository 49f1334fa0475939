# postgres.bash: a PostgreSQL server of our own, for tests. It listens on a socket in a temporary
# directory and nowhere else, and waits for the disk like a real one. Sourced by
# tests/tools/with-postgres.sh, and by tests that make their server crash.
#
#   pg_make [OPTION...] a new server (options of initdb); sets and exports FORGE_PG_DIR, FORGE_TEST_PG (its URL)
#   pg_start            starts it (again); returns when it answers
#   pg_stop             an orderly stop
#   pg_kill             SIGKILL to all of it at once; returns when nothing of it is left
#   pg_remove           stops it whatever state it is in, and removes its directory
#   pg_sql SQL [NAME]   runs SQL in database NAME (forge)
#   pg_url NAME         the URL of database NAME
#
# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0

# The programs are not in PATH on Debian: the newest version there is.
pg_bin() {
    local dir
    for dir in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
        [ ! -x "$dir/initdb" ] || { echo "$dir"; return; }
    done
    dir=$(command -v initdb) && dirname "$dir"
}

# The server refuses to be root; an ordinary user runs it as itself.
pg_as() {
    if [ "$(id -u)" -ne 0 ]; then
        "$@"
    elif getent passwd postgres >/dev/null; then
        setpriv --reuid postgres --regid postgres --clear-groups "$@"
    else
        setpriv --reuid nobody --regid nogroup --clear-groups "$@"
    fi
}

pg_make() {
    local bin
    bin=$(pg_bin) || { echo "no PostgreSQL server (Debian: postgresql)" >&2; return 1; }
    # A short name: the path of a socket has 107 characters.
    FORGE_PG_DIR=$(cd /tmp && pg_as mktemp -d /tmp/forge-pg-XXXXXX) || return
    FORGE_TEST_PG=$(pg_url forge)
    export FORGE_PG_DIR FORGE_TEST_PG
    # The directory's mode is the lock on the door. Errors must read alike everywhere.
    (cd "$FORGE_PG_DIR" && pg_as "$bin/initdb" --auth=trust --username=forge --encoding=UTF8 \
        --locale=C.UTF-8 --no-instructions "$@" "$FORGE_PG_DIR/data") >"$FORGE_PG_DIR.log" 2>&1 ||
        { cat "$FORGE_PG_DIR.log" >&2; return 1; }
    cat >>"$FORGE_PG_DIR/data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$FORGE_PG_DIR'
dynamic_shared_memory_type = mmap # in its own directory: one that is killed leaves it in /dev/shm
max_connections = 300
shared_buffers = 32MB
fsync = on
log_min_messages = fatal
CONF
    pg_start && pg_sql 'CREATE DATABASE forge' postgres
}

# pg_ctl asks the server itself whether it is ready.
pg_start() {
    (cd "$FORGE_PG_DIR" && pg_as "$(pg_bin)/pg_ctl" -D "$FORGE_PG_DIR/data" -w -t 60 -s \
        -l "$FORGE_PG_DIR/server.log" start) 3>&- 4>&- ||
        { tail -n 20 "$FORGE_PG_DIR/server.log" >&2; return 1; }
}

pg_stop() {
    (cd "$FORGE_PG_DIR" && pg_as "$(pg_bin)/pg_ctl" -D "$FORGE_PG_DIR/data" -w -t 60 -s -m fast stop)
}

# The first line of its pid file, when that process is a server of this directory.
pg_pid() {
    local pid
    pid=$(head -n 1 "$FORGE_PG_DIR/data/postmaster.pid" 2>/dev/null) || return
    [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$FORGE_PG_DIR/data" ] && echo "$pid"
}

# Every process of the server, wherever its parent has gone: all of them work in its directory.
pg_pids() {
    local dir
    for dir in /proc/[0-9]*; do
        [ "$(readlink "$dir/cwd" 2>/dev/null)" != "$FORGE_PG_DIR/data" ] || echo "${dir#/proc/}"
    done
}

# As a power cut would: the postmaster first, so that it starts no new ones.
pg_kill() {
    local pid pids
    pid=$(pg_pid) || true # it went by itself
    [ -z "$pid" ] || kill -KILL "$pid" || true
    while pids=$(pg_pids) && [ -n "$pids" ]; do
        for pid in $pids; do
            kill -KILL "$pid" 2>/dev/null || true # it went by itself
        done
    done
    # A zombie that nobody has buried yet would pass for a running server.
    rm -f "$FORGE_PG_DIR/data/postmaster.pid" "$FORGE_PG_DIR"/.s.PGSQL.*
}

pg_remove() {
    [ -n "${FORGE_PG_DIR:-}" ] || return 0
    pg_kill
    rm -rf "$FORGE_PG_DIR" "$FORGE_PG_DIR.log"
    unset FORGE_PG_DIR FORGE_TEST_PG
}

pg_sql() {
    "$(pg_bin)/psql" -qAtX -v ON_ERROR_STOP=1 -h "$FORGE_PG_DIR" -U forge -d "${2:-forge}" -c "$1"
}

pg_url() { echo "postgresql://forge@/$1?host=$FORGE_PG_DIR"; }
