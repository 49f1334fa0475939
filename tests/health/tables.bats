#!/usr/bin/env bats
# Who changed a table while a run with a network was there: a real PostgreSQL server on loopback, and runs, other clients and
# forwarders that write. As root the kernel counts the connections of the run (eBPF); of an ordinary user's run it is known how many sockets
# it made.
# SPDX-License-Identifier: Apache-2.0
load ../lib/forge.bash
load ../lib/postgres.bash

setup_file() {
    bats_require_minimum_version 1.5.0
    pg_make
    # Also over TCP, at a port that was free a moment ago.
    PGPORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    export PGPORT
    pg_stop
    printf '%s\n' "listen_addresses = '127.0.0.1'" "port = $PGPORT" >>"$FORGE_PG_DIR/data/postgresql.conf"
    pg_start
    pg_sql "CREATE ROLE closed LOGIN; CREATE ROLE watcher LOGIN" postgres
    sed -i '1i host all closed all reject' "$FORGE_PG_DIR/data/pg_hba.conf"
    pg_sql "SELECT pg_reload_conf()" postgres >/dev/null
}

teardown_file() { pg_remove; }

setup() {
    : "${FORGE:?set FORGE to the program under test}"
    mode=$(test_mode)
    T=$BATS_TEST_TMPDIR
    export FORGE FORGE_HOME=$T/home FORGE_CONFIG=$T/forge.yaml HOME=$T
    PATH=$(tr : '\n' <<<"$PATH" | grep -v '/shims$' | paste -sd :)
    unset FORGE_STORE PGPASSWORD PGHOST PGUSER PGSSLMODE
    umask 022
    started=()
    record=$T/record
    psql=$(pg_bin)/psql
    cd "$T" || return
    mkdir gate
    database=tables_${$}_$BATS_TEST_NUMBER
    pg_sql "CREATE DATABASE $database" postgres
    sql "CREATE TABLE samples (id serial PRIMARY KEY, value text); INSERT INTO samples (value) VALUES ('old')"
    sql "GRANT SELECT ON samples TO watcher"
    url=postgresql://forge@127.0.0.1:$PGPORT/$database
    configure "$url" warn
}

teardown() {
    local pid
    for pid in "${started[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    pg_sql "DROP DATABASE IF EXISTS $database WITH (FORCE)" postgres
}

sql() { pg_sql "$1" "$database"; }

# configure URL UNATTRIBUTED: the database is guarded.
configure() {
    printf '%s\n' 'version: 1' "guard: {unattributed: $2}" 'health:' \
        "  p: {kind: postgres, url: \"$1\", contents: [samples], timeout: 60s}" >"$FORGE_CONFIG"
}

insert="INSERT INTO samples (value) VALUES ('new')"
# writes [PORT]: a command that adds a row, over TCP.
writes() { echo "$psql -qAtX -h 127.0.0.1 -p ${1:-$PGPORT} -U forge -d $database -c \"$insert\""; }

# run_it COMMAND: in a shell, with the network of the host.
run_it() {
    status=0
    "$FORGE" run --json --network host -- sh -c "$1" >"$record" 2>"$T/err" 3>&- || status=$?
    shown
}
shown() {
    cat "$T/err" >&2 || true
    jq -r '.status, .completion_notes, (.health.post.connections | tostring)' "$record"
}

# begin COMMAND: the same in the background; it carries out COMMAND and then waits for finish.
begin() {
    background sh -c '$runner_prefix "$FORGE" run --json --network host -i "$1/gate" -- sh -c "$2; echo is-ready; until [ -e $1/gate/open ]; do sleep 0.05; done" >"$1/record" 2>"$1/err"' sh "$T" "$1"
    runner=$pid
    wait_for grep -rqs is-ready "$FORGE_HOME/runs" --include=stdout
}
finish() {
    touch gate/open
    status=0
    wait "$runner" || status=$?
    shown
}

is() { [ "$(jq -r .status "$record")" = "$1" ] || { echo "not $1"; return 1; }; }
says() { [[ "$(jq -r .completion_notes "$record")" == *"$1"* ]] || { echo "does not say: $1"; return 1; }; }
# unknown: nobody is blamed for certain, and the sentence says why.
unknown() {
    is succeeded && says "table samples has other rows now" && says "by whom is not known: $1"
}
# Only root's runs have their connections counted. Of all others it is known how many sockets they made.
counts() { [ "$mode" = root ]; }
uncounted() {
    unknown "it made " && says "its connections are not known (eBPF programs cannot be attached" &&
        jq -e '.health.post.connections.sockets > 0' "$record"
}

# forward: passes connections on to the server, each over one of its own; $port.
forward() {
    cat >forward.py <<'PY'
import socket, sys, threading
def copy(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], file=open(sys.argv[2], "w"), flush=True)
while True:
    a, _ = s.accept()
    b = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=copy, args=(a, b), daemon=True).start()
    threading.Thread(target=copy, args=(b, a), daemon=True).start()
PY
    background python3 forward.py "$PGPORT" "$T/forwarded"
    wait_for test -s forwarded
    port=$(<forwarded)
}

# pool: has one session open, and writes a row over it for everybody who connects; $port.
pool() {
    cat >pool.py <<'PY'
import socket, subprocess, sys
p = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
def ask(text):
    p.stdin.write(text + ";\nSELECT 'done';\n")
    while p.stdout.readline().strip() != "done":
        pass
ask("SELECT 1")
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], file=open(sys.argv[1], "w"), flush=True)
while True:
    a, _ = s.accept()
    ask(sys.argv[2])
    a.sendall(b"done\n")
    a.close()
PY
    background python3 pool.py "$T/pooled" "$insert" "$psql" -qAtX -h 127.0.0.1 -U forge -d "$database"
    wait_for test -s pooled
    port=$(<pooled)
}
connects() { echo "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", $1)).recv(9)'"; }

@test "a run that writes alone did it: corrupted, whatever is configured for the unknown" {
    run_it "$(writes) && $(writes)"
    counts || { uncounted; says "the server opened 2 sessions meanwhile, and 0 clients"; return; }
    is corrupted
    [ "$(jq -r .reason "$record")" = health_post ]
    says "Corrupted: p: table samples has other rows now"
    says "this run did it: nobody else had a session, and all of the 2 sessions that the server opened meanwhile are its own"
    [ "$(jq '.health.post.connections.sessions | length' "$record")" -eq 2 ]
    [ "$(jq '[.health.post.connections.made[] | select(.port == '"$PGPORT"' and .address == "127.0.0.1" and (.udp | not)).count] | add' "$record")" -eq 2 ]
}

@test "another client writes while a run connects nowhere: the run is not blamed" {
    configure "$url" corrupted
    begin true
    sql "$insert"
    finish
    # This is known of the runs of every user: they made no socket.
    is succeeded
    says "table samples has other rows now"
    says "this run made no connection and cannot have done it"
    [ "$(jq -c '.health.post.connections.sockets' "$record")" = 0 ]
}

@test "a run that makes sockets and connects nowhere is not blamed where its connections are counted" {
    configure "$url" corrupted
    begin "python3 -c 'import socket; socket.socket(); socket.socketpair()'"
    sql "$insert"
    finish
    [ "$(jq -c '.health.post.connections.sockets' "$record")" = 1 ]
    counts || { is corrupted; says "it made 1 socket, and its connections are not known (eBPF"; return; }
    is succeeded
    says "this run made no connection and cannot have done it"
    [ "$(jq -c '.health.post.connections.made' "$record")" = "[]" ]
}

@test "a run that turned to a UNIX socket is not cleared" {
    begin "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect_ex(\"/nowhere\")'"
    sql "$insert"
    finish
    [ "$(jq -c '.health.post.connections.sockets' "$record")" = 1 ]
    counts || { uncounted; return; }
    unknown "it made 0 connections, "
    says "UNIX sockets"
}

@test "a run that made one of a pair of datagram sockets, which can send to any name, is not cleared" {
    # SOCK_RAW is another name for SOCK_DGRAM. The sockets of the other pairs talk to each other only.
    begin "python3 -c 'import socket as s; [s.socketpair(s.AF_UNIX, t) for t in (s.SOCK_STREAM, s.SOCK_SEQPACKET, s.SOCK_DGRAM | s.SOCK_CLOEXEC, s.SOCK_RAW)]'"
    sql "$insert"
    finish
    [ "$(jq -c '.health.post.connections | [.sockets, .sockets_unix]' "$record")" = "[2,2]" ]
    counts || { uncounted; return; }
    unknown "it made 0 connections, 2 UNIX sockets to which others can connect"
}

@test "a run that listens at a UNIX socket may have been told what to write: it is not cleared" {
    begin "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"told\"); s.listen()'"
    sql "$insert"
    finish
    [ "$(jq -c '.health.post.connections | [.sockets, .sockets_unix]' "$record")" = "[1,1]" ]
    counts || { uncounted; return; }
    unknown "it made 0 connections, 1 UNIX socket to which others can connect"
}

@test "ping sockets are noted as well" {
    begin "python3 -c 'import socket as s
for family, protocol in ((s.AF_INET, s.IPPROTO_ICMP), (s.AF_INET6, s.IPPROTO_ICMPV6)):
    try:
        s.socket(family, s.SOCK_DGRAM, protocol)
    except PermissionError:
        print(\"not for this group\")'"
    sql "$insert"
    finish
    [ "$(jq -c '.health.post.connections | [.sockets, .sockets_unix]' "$record")" = "[2,0]" ]
}

@test "where the filter cannot report sockets, none that were seen clear nobody" {
    # As in a container whose engine has a listener of its own: seccomp(2) cannot be had, prctl(2) can.
    export runner_prefix="$NOSYS seccomp=ENOSYS --"
    begin true
    sql "$insert"
    finish
    jq -e '.health.post.connections.sockets == null' "$record"
    # The kernel does not count who connects to a UNIX socket of the run.
    counts || { unknown "its connections are not known (eBPF programs"; return; }
    unknown "it made 0 connections, UNIX sockets cannot be seen here"
}

@test "a client that was connected before writes, and the run connects nowhere: it is not blamed" {
    configure "$url" corrupted
    pool
    begin true
    python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1]))).recv(9)' "$port"
    finish
    is succeeded
    says "this run made no connection and cannot have done it"
}

@test "the run and another client write: it is not known who, and the configuration decides" {
    begin "$(writes)"
    sql "$insert"
    finish
    if counts; then
        unknown "it made 1 connection (127.0.0.1 port $PGPORT"
    else
        uncounted
    fi
    says "the server opened 2 sessions meanwhile, and 0 clients had been connected before"
    configure "$url" corrupted
    rm gate/open
    rm -r "$FORGE_HOME"
    begin "$(writes)"
    sql "$insert"
    finish
    is corrupted
    says "by whom is not known"
}

@test "a run that is turned away is not blamed for the client that was let in" {
    # One connection and one session, as of a run that writes.
    begin "$(writes | sed 's/-U forge/-U closed/') || true"
    sql "$insert"
    finish
    if counts; then
        unknown "it made"
        [ "$(jq '.health.post.connections.sessions | length' "$record")" -eq 0 ]
        [ "$(jq '.health.post.connections.made | length' "$record")" -eq 1 ]
    else
        uncounted
    fi
    says "the server opened 1 session meanwhile"
}

@test "a run that writes through a forwarder is not cleared" {
    forward
    run_it "$(writes "$port")"
    counts || { uncounted; return; }
    unknown "it made 1 connection (127.0.0.1 port $port"
    says "the server opened 1 session meanwhile"
}

@test "a run that has a pooler write over a session that was there is not cleared" {
    pool
    run_it "$(connects "$port")"
    counts || { uncounted; says "the server opened 0 sessions meanwhile, and 1 client had"; return; }
    unknown "it made 1 connection (127.0.0.1 port $port"
    says "the server opened 0 sessions meanwhile, and 1 client had been connected before"
}

@test "a client that was connected before and is still there: a run that wrote is not blamed for certain" {
    pool
    run_it "$(writes)"
    counts || { uncounted; return; }
    unknown "it made 1 connection"
    says "1 client had been connected before"
}

@test "a client that was connected before and has gone: a run that wrote is not blamed for certain" {
    pool
    pooler=$pid
    begin "$(writes)"
    # Its session ends with its psql, which ends with its input.
    kill -KILL "$pooler"
    # To ask the server would open a session.
    alone() { ! grep -qas "postgres: [f]orge $database " /proc/[0-9]*/cmdline; }
    wait_for alone
    finish
    counts || { uncounted; return; }
    unknown "it made 1 connection"
    says "1 client had been connected before"
}

@test "a check through a forwarder or a UNIX socket does not know the server's address: nothing is certain" {
    forward
    configure "postgresql://forge@127.0.0.1:$port/$database" warn
    run_it "$(writes "$port")"
    counts || { uncounted; return; }
    unknown "it made 1 connection"
    configure "$(pg_url "$database")" warn
    run_it "$(writes)"
    unknown "it made 1 connection"
}

@test "a check whose user does not see the other clients knows nothing for certain" {
    configure "postgresql://watcher@127.0.0.1:$PGPORT/$database" warn
    run_it "$(writes)"
    counts || { uncounted; return; }
    unknown "it made 1 connection"
    says "the check's user sees not all"
    pg_sql "GRANT pg_read_all_stats TO watcher" postgres
    run_it "$(writes)"
    pg_sql "REVOKE pg_read_all_stats FROM watcher" postgres
    is corrupted
    says "this run did it"
}

@test "a view changes by itself, a parent with its children: a run that connected is not blamed for certain" {
    sql "CREATE VIEW clock AS SELECT clock_timestamp() AS now; CREATE TABLE parent (LIKE samples); CREATE TABLE child () INHERITS (parent)"
    sed -i 's/samples/clock/' "$FORGE_CONFIG"
    # It has one session, and nobody else has one.
    run_it "$psql -qAtX -h 127.0.0.1 -p $PGPORT -U forge -d $database -c 'SELECT 1'"
    is succeeded
    says "table clock has other rows now"
    counts || { says "its connections are not known"; return; }
    says "by whom is not known: it made 1 connection"
    says "the server opened 1 session meanwhile, and 0 clients had been connected before; what is guarded is not all plain tables"
    sed -i 's/clock/parent/' "$FORGE_CONFIG"
    run_it "$(writes | sed "s/samples (value)/parent (id, value)/; s/('new')/(1, 'new')/")"
    is succeeded
    says "by whom is not known"
}

@test "a subscription may write without a session: a run that wrote is not blamed for certain" {
    sql "CREATE SUBSCRIPTION sub_$database CONNECTION 'host=127.0.0.1' PUBLICATION none WITH (connect = false)" 2>/dev/null
    run_it "$(writes)"
    sql "ALTER SUBSCRIPTION sub_$database SET (slot_name = NONE)"
    sql "DROP SUBSCRIPTION sub_$database"
    jq -e '.health.pre.checks[] | select(.name == "p").numbers.sessions_before.others | map(.worker) == ["subscription"]' "$record"
    counts || { uncounted; return; }
    unknown "it made 1 connection"
}

@test "a check of a standby: the rows come from another server, and nobody is blamed for certain" {
    standby=$FORGE_PG_DIR/standby
    read -r sport < <(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    (cd / && pg_as "$(pg_bin)/pg_basebackup" -h "$FORGE_PG_DIR" -p "$PGPORT" -U forge -D "$standby" -c fast -X stream -R)
    sed -i "s/^port = .*/port = $sport/" "$standby/postgresql.conf"
    (cd / && pg_as "$(pg_bin)/pg_ctl" -D "$standby" -w -t 60 -s -l "$FORGE_PG_DIR/standby.log" start) 3>&- 4>&-
    configure "postgresql://forge@127.0.0.1:$sport/$database" warn
    begin "$psql -qAtX -h 127.0.0.1 -p $sport -U forge -d $database -c 'SELECT 1'"
    sql "$insert"
    lsn=$(sql "SELECT pg_current_wal_lsn()")
    # The primary knows; to ask the standby would open a session there.
    replayed() { [ "$(sql "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= '$lsn'")" = 1 ]; }
    wait_for replayed
    finish
    (cd / && pg_as "$(pg_bin)/pg_ctl" -D "$standby" -w -t 60 -s -m immediate stop)
    rm -rf "$standby"
    is succeeded
    says "table samples has other rows now"
    says "the server of the check is a standby"
    jq -e '.health.post.checks[] | select(.name == "p").numbers | has("sessions_after") | not' "$record"
}

@test "an encrypted connection cannot be read: a run that wrote over one is not blamed for certain" {
    (cd / && pg_as openssl req -new -x509 -nodes -days 2 -subj /CN=test -newkey rsa:2048 \
        -keyout "$FORGE_PG_DIR/data/server.key" -out "$FORGE_PG_DIR/data/server.crt") >/dev/null 2>&1
    pg_sql "ALTER SYSTEM SET ssl = on" postgres
    pg_sql "SELECT pg_reload_conf()" postgres
    wait_for env PGSSLMODE=require "$psql" -qAtX -h 127.0.0.1 -U forge -d "$database" -c "SELECT 1"
    run_it "PGSSLMODE=require $(writes)"
    pg_sql "ALTER SYSTEM RESET ssl" postgres
    pg_sql "SELECT pg_reload_conf()" postgres
    counts || { uncounted; return; }
    unknown "it made 1 connection (127.0.0.1 port $PGPORT)"
    jq -e '.health.post.connections.sessions == []' "$record"
    says "the server opened 1 session meanwhile, and 0 clients had been connected before"
}

@test "statistics that began anew are not compared" {
    begin "$(writes)"
    pg_stop
    pg_start
    finish
    unknown ""
    says "the server's statistics began anew meanwhile"
    rm gate/open
    rm -r "$FORGE_HOME"
    begin "$(writes)"
    sql "SELECT pg_stat_reset()"
    finish
    unknown ""
    says "the server's statistics began anew meanwhile"
}

@test "IPv6, datagrams, UNIX sockets and other programs that connect to the run are counted" {
    counts || skip "only root can do this"
    cat >talk.py <<'PY'
import os, socket, sys, time
def quiet(f, *a):
    try:
        f(*a)
    except OSError:
        pass
quiet(socket.socket(socket.AF_INET6, socket.SOCK_STREAM).connect, ("::1", 9))
quiet(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect, ("127.0.0.1", 9))
quiet(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto, b"x", ("::ffff:127.0.0.1", 19))
quiet(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect, "/nowhere")
if len(sys.argv) > 1:
    s = socket.create_server(("127.0.0.1", 0))
    print("port", s.getsockname()[1], flush=True)
    s.accept()
PY
    status=0
    "$FORGE" run --json --network host -i talk.py -- sh -c "python3 $T/talk.py" >"$record" 2>err || status=$?
    shown
    jq -e '.health.post.connections | .complete and .incoming == 0' "$record"
    # null: this kernel does not report them.
    jq -e '.health.post.connections.unix | . == null or . >= 1' "$record"
    jq -e '.health.post.connections.made | map(select(.address == "::1" and .port == 9 and (.udp | not) and .count == 1)) | length == 1' "$record"
    jq -e '.health.post.connections.made | map(select(.address == "127.0.0.1" and .port == 9 and .udp)) | length == 1' "$record"
    jq -e '.health.post.connections.made | map(select(.address == "127.0.0.1" and .port == 19 and .udp)) | length == 1' "$record"
    # Another program connects to the run, which could be told so what to write.
    background sh -c '"$FORGE" run --json --network host -i "$1/talk.py" -- python3 "$1/talk.py" serve >"$1/record" 2>"$1/err"' sh "$T"
    runner=$pid
    has_port() { grep -rhs '^port ' "$FORGE_HOME/runs" --include=stdout >said; }
    wait_for has_port
    python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])))' "$(cut -d' ' -f2 said)"
    wait "$runner"
    shown
    jq -e '.health.post.connections.incoming == 1' "$record"
}

# apart COMMAND [OPTION...]: in a run without a network, during which another client writes.
apart() {
    local command=$1
    shift
    background sh -c 'dir=$1; command=$2; shift 2; "$FORGE" run --json -i "$dir/gate" "$@" -- sh -c "$command; echo is-ready; until [ -e $dir/gate/open ]; do sleep 0.05; done" >"$dir/record" 2>"$dir/err"' sh "$T" "$command" "$@"
    runner=$pid
    wait_for grep -rqs is-ready "$FORGE_HOME/runs" --include=stdout
    sql "$insert"
    finish
    rm gate/open
}
local_socket="python3 -c 'import socket; socket.socket(socket.AF_UNIX)'"

@test "a run without a network is cleared, unless a UNIX socket in its inputs may have led to the server" {
    configure "$url" corrupted
    apart true
    is succeeded
    says "this run had no network, made no UNIX socket and cannot have done it"
    jq -e '.health.post.connections == {"sockets_unix": 0}' "$record"
    rm -r "$FORGE_HOME"
    # It looked up a user, perhaps.
    apart "$local_socket"
    is succeeded
    says "this run had no network, and there is no socket in what it could read"
    jq -e '.health.post | .connections.sockets_unix == 1 and .input_socket == null' "$record"
    rm -r "$FORGE_HOME"
    # The server's own socket is there.
    mkdir -p data/deep
    python3 -c 'import os, socket, sys; os.chdir("data/deep"); socket.socket(socket.AF_UNIX).bind("s.PGSQL")'
    apart true -i data
    is succeeded
    says "cannot have done it"
    rm -r "$FORGE_HOME"
    apart "$local_socket" -i data
    is corrupted
    says "by whom is not known: this run had no network, but may have used a UNIX socket (a socket: s.PGSQL)"
    rm -r "$FORGE_HOME"
    # The number of its sockets is not limited, and they are noted all the same.
    echo 'host: {allow_unlimited: true}' >>"$FORGE_CONFIG"
    apart "$local_socket" -i data --sockets unlimited
    is corrupted
    says "may have used a UNIX socket"
}

@test "a run without a network that writes over the server's UNIX socket in an input is not cleared" {
    mkdir sockets
    chmod 777 sockets
    pg_sql "ALTER SYSTEM SET unix_socket_directories = '$FORGE_PG_DIR', '$T/sockets'" postgres
    chmod a+x "$T" "$BATS_RUN_TMPDIR" "$BATS_FILE_TMPDIR" 2>/dev/null || true
    pg_stop
    pg_start
    status=0
    "$FORGE" run --json -i sockets -- sh -c "$psql -qAtX -h $T/sockets -p $PGPORT -U forge -d $database -c \"$insert\"" >"$record" 2>err || status=$?
    pg_sql "ALTER SYSTEM RESET unix_socket_directories" postgres
    pg_stop
    pg_start
    shown
    [ "$(sql "SELECT count(*) FROM samples")" -eq 2 ]
    unknown "this run had no network, but may have used a UNIX socket (a socket: .s.PGSQL.$PGPORT)"
}

@test "nothing is counted for a run that has no table to guard" {
    printf '%s\n' 'version: 1' 'health:' "  p: {kind: postgres, url: \"$url\", tables: [samples]}" >"$FORGE_CONFIG"
    run_it true
    jq -e '.health.post | has("connections") | not' "$record"
    jq -e '.health.post.checks[] | select(.name == "p").numbers | has("sessions_before") | not' "$record"
}
