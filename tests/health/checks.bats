#!/usr/bin/env bats
# The kinds of checks of `forge health check`, against real services: each finds what is broken, names it, and
# passes when nothing is. No test changes what it checks by checking it, and no secret is printed or stored.
# SPDX-License-Identifier: Apache-2.0
load ../lib/forge.bash
load ../lib/postgres.bash

# What every URL of these tests has as its password.
secret=s3cret-w0rd

setup_file() {
    bats_require_minimum_version 1.5.0
    pg_make --data-checksums
    # Roles that must have a password, over the same socket.
    sed -i '1i local all asked scram-sha-256' "$FORGE_PG_DIR/data/pg_hba.conf"
    pg_sql "CREATE ROLE asked LOGIN PASSWORD 's3cret-w0rd'" postgres
    pg_sql "SELECT pg_reload_conf()" postgres >/dev/null
}

teardown_file() { pg_remove; }

setup() {
    : "${FORGE:?set FORGE to the program under test}"
    mode=$(test_mode)
    T=$BATS_TEST_TMPDIR
    export FORGE FORGE_HOME=$T/home FORGE_CONFIG=$T/forge.yaml HOME=$T
    # What an ordinary user cannot run either.
    PATH=$(tr : '\n' <<<"$PATH" | grep -v '/shims$' | paste -sd :)
    unset FORGE_STORE PGPASSWORD PGHOST PGUSER http_proxy HTTP_PROXY
    started=() database=
    out=$T/out err=$T/err
    cd "$T" || return
}

teardown() {
    local pid rc=0
    for pid in "${started[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    [ -z "$database" ] || { [ -n "$(pg_pid)" ] || pg_start; pg_sql "DROP DATABASE $database WITH (FORCE)" postgres; }
    if [ -e "$FORGE_HOME" ] && grep -rqa "$secret" "$FORGE_HOME"; then
        echo "a secret is stored:"
        grep -rla "$secret" "$FORGE_HOME"
        rc=1
    fi
    return "$rc"
}

# checks LINE...: the section health of the configuration.
checks() { printf '%s\n' 'version: 1' 'health:' "${@/#/  }" >"$FORGE_CONFIG"; }

# check [NAME]: carries out. $status; results are for is_ok and text.
check() {
    status=0
    "$FORGE" health check --json "$@" >"$out" 2>"$err" 3>&- || status=$?
    jq -r '.[] | "\(.name) \(.ok): \(.text)"' "$out" || true # what a failed test shows
    cat "$err"
    if grep -qa "$secret" "$out" "$err"; then
        echo "a secret is printed"
        return 1
    fi
}

of() { jq -r --arg name "$1" '.[] | select(.name == $name) | '"$2" "$out"; }
text() { of "$1" .text; }
passed() { [ "$(of "$1" .ok)" = true ]; }
# failed NAME PATTERN: with a text that contains it.
failed() {
    [ "$(of "$1" .ok)" = false ] || { echo "$1 passed"; return 1; }
    [[ "$(text "$1")" == *"$2"* ]] || { echo "$1: no '$2' in: $(text "$1")"; return 1; }
}

# serve MODE FILE ARG...: see server.py. $pid is its process.
serve() {
    background python3 "$BATS_TEST_DIRNAME/server.py" "$@"
    wait_for test -s "$2"
}

# ---- SQLite ----

# many PATH [PRAGMA]: a database of some hundred pages.
many() {
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA page_size = 4096")
db.execute(sys.argv[2])
db.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, value TEXT)")
db.execute("CREATE INDEX by_value ON samples (value)")
db.executemany("INSERT INTO samples (value) VALUES (?)", [(f"{i:0200}",) for i in range(2000)])
db.commit()
db.close()' "$1" "${2:-PRAGMA journal_mode = DELETE}"
}

overwrite() { head -c "${3:-4096}" /dev/urandom | dd of="$1" bs=4096 seek="$2" conv=notrunc status=none; }

@test "sqlite: a sound database passes with numbers, and nothing is changed" {
    mkdir db
    many db/a.db
    checks "a: {kind: sqlite, path: db/a.db, tables: [samples]}" \
        "t: {kind: sqlite, path: db/a.db, tables: [samples], thorough: true}"
    before=$(hash_of db)
    check
    [ "$status" -eq 0 ]
    [[ "$(text a)" =~ ^"ok, 1 table, "[0-9.]+" KiB"$ ]] || [[ "$(text a)" =~ ^"ok, 1 table, "[0-9.]+" MiB"$ ]]
    passed t
    [ "$(of a .numbers.tables)" -eq 1 ]
    [ "$(of a .numbers.size_bytes)" -eq "$(stat -c %s db/a.db)" ]
    [ "$(hash_of db)" = "$before" ]
}

@test "sqlite: an overwritten page is found and named" {
    many a.db
    cp a.db index.db
    overwrite a.db 20
    # Two rows of the index in the wrong order: only integrity_check compares them with the table.
    python3 -c 'import sys
data = bytearray(open("index.db", "rb").read())
at = data.rindex(b"%0200d" % 7)
data[at + 199] = ord("3")
open("index.db", "wb").write(data)'
    checks "a: {kind: sqlite, path: a.db}" "t: {kind: sqlite, path: a.db, thorough: true}" \
        "q: {kind: sqlite, path: index.db}" "i: {kind: sqlite, path: index.db, thorough: true}"
    check
    [ "$status" -eq 1 ]
    failed a "Page 21"
    failed t "Page 21"
    passed q
    failed i "missing from index by_value"
}

@test "sqlite: what is no database, or lacks a table, is named" {
    many a.db
    : >empty.db
    echo "this is a text, and no database of any kind" >text.db
    mkfifo fifo.db
    checks "a: {kind: sqlite, path: a.db, tables: [Samples, nope, nada]}" "e: {kind: sqlite, path: empty.db}" \
        "t: {kind: sqlite, path: text.db}" "n: {kind: sqlite, path: none.db}" "f: {kind: sqlite, path: fifo.db}"
    check
    failed a "it has no table nope, nada"
    failed e "it is empty"
    failed t "file is not a database"
    failed n "No such file"
    failed f "no regular file"
    [ ! -e none.db ]
}

@test "sqlite: a name with odd characters is a name" {
    mkdir db
    many 'db/a?mode=rwc#x%41 b.db'
    checks 'a: {kind: sqlite, path: "db/a?mode=rwc#x%41 b.db", tables: [samples]}'
    check
    passed a
    [ "$(ls db)" = 'a?mode=rwc#x%41 b.db' ]
}

@test "sqlite: a write-ahead log in use is read, and neither it nor its memory is changed" {
    mkdir db
    many db/w.db "PRAGMA journal_mode = WAL"
    serve sqlite ready "$T/db/w.db" 'CREATE TABLE late (x); INSERT INTO late VALUES (1); BEGIN IMMEDIATE; DELETE FROM samples'
    [ -s db/w.db-wal ]
    checks "w: {kind: sqlite, path: db/w.db, tables: [samples, late], thorough: true}"
    before=$(hash_of db)
    check
    passed w
    [ "$(of w .numbers.write_ahead_log)" = true ]
    [ "$(of w .numbers.tables)" -eq 2 ]
    [ "$(hash_of db)" = "$before" ]
}

@test "sqlite: the log of a killed program is read" {
    mkdir db
    many db/w.db "PRAGMA journal_mode = WAL"
    serve sqlite ready "$T/db/w.db" 'CREATE TABLE late (x)'
    kill -KILL "$pid"
    wait "$pid" || true
    [ -s db/w.db-wal ]
    checks "w: {kind: sqlite, path: db/w.db, tables: [samples, late]}"
    before=$(hash_of db)
    check
    passed w
    [ "$(hash_of db)" = "$before" ]
}

@test "sqlite: beside an unused database in write-ahead mode no file is made" {
    mkdir db
    many db/w.db "PRAGMA journal_mode = WAL"
    [ "$(ls db)" = w.db ]
    cp db/w.db bad.db
    overwrite bad.db 20
    checks "w: {kind: sqlite, path: db/w.db, tables: [samples]}" "b: {kind: sqlite, path: bad.db}"
    before=$(hash_of db)
    check
    passed w
    failed b "Page 21"
    [ "$(hash_of db)" = "$before" ]
    [ ! -e bad.db-wal ]
}

@test "sqlite: the database of another user is read, or the error says what is unreadable" {
    [ "$mode" = root ] || skip "only root can do this"
    chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$(dirname "$BATS_FILE_TMPDIR")" "$(dirname "$T")" "$T"
    # Every user may make files here: none must be made.
    mkdir -m 1777 db
    mkdir -m 700 home2
    chown 12345 home2
    many db/w.db "PRAGMA journal_mode = WAL"
    checks "w: {kind: sqlite, path: db/w.db, tables: [samples]}"
    chmod 644 "$FORGE_CONFIG"
    install -m 755 "$FORGE" forge
    as_other() {
        status=0
        FORGE_HOME=$T/home2 setpriv --reuid 12345 --regid 12345 --clear-groups "$T/forge" health check --json w \
            >"$out" 2>"$err" || status=$?
        cat "$out" "$err"
    }
    before=$(hash_of db)
    as_other
    passed w
    [ "$(hash_of db)" = "$before" ]
    serve sqlite ready "$T/db/w.db" 'CREATE TABLE late (x)'
    before=$(hash_of db)
    as_other
    passed w
    [ "$(of w .numbers.tables)" -eq 2 ]
    [ "$(hash_of db)" = "$before" ]
    chmod 600 db/w.db-wal db/w.db-shm
    as_other
    failed w "its write-ahead log (-wal, -shm) cannot be read: Permission denied"
    chmod 600 db/w.db
    as_other
    failed w "Permission denied"
}

@test "sqlite: programs that open and close the database are not disturbed, and do not disturb" {
    [ "$mode" = root ] || skip "only root can do this"
    chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$(dirname "$BATS_FILE_TMPDIR")" "$(dirname "$T")" "$T"
    mkdir -m 1777 db
    mkdir home2
    many db/w.db "PRAGMA journal_mode = WAL"
    chown 12346 db/w.db
    chown 12345 home2
    # A log that our user made would keep the other from writing: it may neither open nor remove it.
    install -m 755 "$BATS_TEST_DIRNAME/server.py" server.py
    background setpriv --reuid 12346 --regid 12346 --clear-groups python3 "$T/server.py" \
        reopen "$T/db/ready" "$T/db/w.db" "$T/db/errors"
    wait_for test -s db/ready
    mapfile -t lines < <(printf 'w%d: {kind: sqlite, path: db/w.db, tables: [samples], timeout: 60s}\n' {1..30})
    checks "${lines[@]}"
    chmod 644 "$FORGE_CONFIG"
    install -m 755 "$FORGE" forge
    end=$((SECONDS + 8))
    while [ "$SECONDS" -lt "$end" ]; do
        FORGE_HOME=$T/home2 run --separate-stderr setpriv --reuid 12345 --regid 12345 --clear-groups "$T/forge" health check --json
        jq -r '.[] | select(.ok | not).text' <<<"$output"
        [ "$(jq 'all(.ok)' <<<"$output")" = true ]
        [ "$(jq 'length' <<<"$output")" -eq 32 ]
    done
    kill -KILL "$pid"
    wait "$pid" || true
    ls -l db
    [ -z "$(find db -uid 12345)" ]
    if [ -e db/errors ]; then
        sort db/errors | uniq -c
        return 1
    fi
}

@test "sqlite: a database that is locked is waited for, within the time-out" {
    many a.db
    serve sqlite ready "$T/a.db" 'BEGIN EXCLUSIVE; DELETE FROM samples'
    checks "a: {kind: sqlite, path: a.db, timeout: 2s}"
    check
    failed a "database is locked"
    checks "a: {kind: sqlite, path: a.db, timeout: 60s}"
    began=$(now_ms)
    (
        pause 1
        kill -KILL "$pid"
    ) 3>&- &
    check
    wait "$!"
    passed a
    [ $(($(now_ms) - began)) -ge 900 ]
}

@test "sqlite: a transaction that was cut off must be undone by a writer, and that is said" {
    mkdir db
    many db/a.db
    # More than the cache: a part of it is in the file already.
    serve sqlite ready "$T/db/a.db" "PRAGMA cache_size = 1; BEGIN; UPDATE samples SET value = 'x'"
    kill -KILL "$pid"
    wait "$pid" || true
    [ -s db/a.db-journal ]
    checks "a: {kind: sqlite, path: db/a.db}"
    before=$(hash_of db)
    check
    failed a "a program was killed while it wrote"
    [ "$(hash_of db)" = "$before" ]
}

# ---- PostgreSQL ----

# with_database: a database of this test with a table; $url.
with_database() {
    database=bats_${$}_$BATS_TEST_NUMBER
    pg_sql "CREATE DATABASE $database" postgres
    url=$(pg_url "$database")
    sql "CREATE TABLE samples (id int PRIMARY KEY, value text);
         INSERT INTO samples SELECT i, repeat(md5(i::text), 6) FROM generate_series(1, 2000) i"
}
sql() { pg_sql "$1" "$database"; }

@test "postgres: a sound database passes, with numbers" {
    with_database
    checks "p: {kind: postgres, url: \"$url\", tables: [samples, public.samples], count: [samples]}"
    check
    [ "$status" -eq 0 ]
    [[ "$(text p)" == "PostgreSQL "*", database $database, 2 tables found, no checksum failures" ]]
    [ "$(of p .numbers.checksums)" = true ]
    [ "$(of p .numbers.count.samples)" -eq 2000 ]
    [ "$(of p '.numbers.connect_seconds > 0')" = true ]
}

@test "postgres: a server that was killed is noticed" {
    with_database
    checks "p: {kind: postgres, url: \"$url\"}"
    check
    passed p
    pg_kill
    check
    [ "$status" -eq 1 ]
    failed p "connection to server on socket \"$FORGE_PG_DIR"
    pg_start
    check
    passed p
}

@test "postgres: a frozen server costs the time-out" {
    with_database
    checks "p: {kind: postgres, url: \"$url\", timeout: 1s}"
    kill -STOP "$(pg_pid)"
    began=$(now_ms)
    check
    kill -CONT "$(pg_pid)"
    failed p "no answer within 1 s"
    in_time "$began" 3000
}

@test "postgres: a table that was dropped is named; names are exact and never SQL" {
    with_database
    sql 'CREATE SCHEMA "Odd"; CREATE TABLE "Odd"."a.b ""c" (t int); CREATE TABLE "Upper" (x int); CREATE VIEW v AS SELECT 1 AS x'
    checks "p: {kind: postgres, url: \"$url\", tables: [samples, Upper, v, 'Odd.a.b \"c'], count: ['Odd.a.b \"c']}" \
        "q: {kind: postgres, url: \"$url\", tables: [upper, 'samples; DROP TABLE samples', \"samples' OR '1'='1\", Odd.samples]}"
    check
    passed p
    [ "$(of p '.numbers.count["Odd.a.b \"c"]')" -eq 0 ]
    failed q "database $database has no table upper, samples; DROP TABLE samples, samples' OR '1'='1, Odd.samples"
    sql 'DROP TABLE samples'
    check
    failed p "database $database has no table samples"
}

@test "postgres: counts and fingerprints tell a change, and not the order of rows" {
    with_database
    # A column with the name of the alias must not stand for the row.
    sql "CREATE TABLE other (t int, x timestamptz, y double precision); INSERT INTO other VALUES (1, now(), 0.1), (1, NULL, 0.2)"
    checks "p: {kind: postgres, url: \"$url\", count: [samples], contents: [samples, other]}"
    check
    passed p
    first=$(of p '.numbers.contents')
    [[ "$(of p .numbers.contents.samples)" =~ ^2000:-?[0-9]+$ ]]
    sql "BEGIN; CREATE TABLE c AS SELECT * FROM samples ORDER BY value; TRUNCATE samples;
         INSERT INTO samples SELECT * FROM c; DROP TABLE c; COMMIT; SET TIME ZONE 'Asia/Tokyo'"
    pg_sql "ALTER ROLE forge SET TimeZone = 'Asia/Tokyo'; ALTER ROLE forge SET DateStyle = German; ALTER ROLE forge SET extra_float_digits = -10" postgres
    check
    pg_sql "ALTER ROLE forge RESET ALL" postgres
    [ "$(of p .numbers.contents)" = "$first" ]
    sql "UPDATE samples SET value = 'x' WHERE id = 77; UPDATE other SET y = 0.3 WHERE x IS NULL"
    check
    [ "$(of p .numbers.count.samples)" -eq 2000 ]
    [ "$(of p .numbers.contents.samples)" != "$(jq -r .samples <<<"$first")" ]
    [ "$(of p .numbers.contents.other)" != "$(jq -r .other <<<"$first")" ]
    sql "DELETE FROM samples WHERE id = 77"
    check
    [ "$(of p .numbers.count.samples)" -eq 1999 ]
    # Two equal rows are not nothing.
    sql "INSERT INTO other VALUES (5, NULL, 1)"
    check
    one=$(of p .numbers.contents.other)
    sql "INSERT INTO other VALUES (9, NULL, 1), (9, NULL, 1)"
    check
    [ "${one#*:}" != "$(of p .numbers.contents.other | cut -d: -f2)" ]
}

@test "postgres: writes and the connections of others are told" {
    with_database
    checks "p: {kind: postgres, url: \"$url\", count: [samples], contents: [samples]}"
    writes_are() { check >/dev/null && [ "$(of p .numbers.writes)" -eq "$1" ]; }
    check
    writes=$(of p .numbers.writes)
    [ "$(of p '.numbers.connections | length')" -eq 0 ]
    # The check itself writes nothing.
    check
    [ "$(of p .numbers.writes)" -eq "$writes" ]
    sql "INSERT INTO samples SELECT i FROM generate_series(3000, 3041) i"
    wait_for writes_are $((writes + 42))
    PGAPPNAME=intruder background "$(pg_bin)/psql" -qAtX -h "$FORGE_PG_DIR" -U forge -d "$database" -c "SELECT pg_sleep(60)"
    sees_intruder() { check >/dev/null && [ "$(of p '.numbers.connections[0].application')" = intruder ]; }
    wait_for sees_intruder
    [ "$(of p '.numbers.connections | length')" -eq 1 ]
    [ "$(of p '.numbers.connections[0].user')" = forge ]
    [ "$(of p '.numbers.connections[0].pid')" -eq "$(sql "SELECT pid FROM pg_stat_activity WHERE application_name = 'intruder'")" ]
}

@test "postgres: a table that changes during a run is told, and a run without a network is not blamed" {
    with_database
    mkdir gate
    checks "p: {kind: postgres, url: \"$url\", count: [samples], contents: [samples], timeout: 60s}"
    background sh -c '"$FORGE" run --json -i "$1/gate" -- sh -c "echo is-ready; until [ -e $1/gate/open ]; do sleep 0.05; done" >"$1/record"' sh "$T"
    wait_for grep -rqs is-ready "$FORGE_HOME/runs" --include=stdout
    sql "INSERT INTO samples VALUES (5001, 'new'), (5002, 'new')"
    touch gate/open
    wait "$pid"
    jq -r .completion_notes record
    [ "$(jq -r .status record)" = succeeded ]
    [[ "$(jq -r .completion_notes record)" == *"p: table samples has another number of rows now (2 rows were written"*"cannot have done it"* ]]
    [[ "$(jq -r .completion_notes record)" == *"p: table samples has other rows now"* ]]
}

@test "postgres: rows that a policy hides are an error, and no smaller count" {
    with_database
    sql "ALTER TABLE samples ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON samples USING (id < 10);
         GRANT SELECT ON samples TO asked; CREATE TABLE closed (x int)"
    url="postgresql://asked:$secret@/$database?host=$FORGE_PG_DIR"
    checks "p: {kind: postgres, url: \"$url\", count: [samples]}" "q: {kind: postgres, url: \"$url\", tables: [closed]}" \
        "r: {kind: postgres, url: \"$url\", count: [closed]}"
    check
    failed p "row-level security"
    # It exists, and that was asked.
    passed q
    failed r "table closed: permission denied"
}

@test "postgres: a damaged data file is found by a thorough check, and stays known" {
    with_database
    sql "CREATE EXTENSION amcheck; CREATE TABLE whole (x int)"
    checks "p: {kind: postgres, url: \"$url\", tables: [samples], thorough: true}" \
        "q: {kind: postgres, url: \"$url\", tables: [samples]}" \
        "w: {kind: postgres, url: \"$url\", tables: [whole], thorough: true}"
    check
    [ "$status" -eq 0 ]
    [[ "$(text p)" == *"1 table found and verified, no checksum failures" ]]
    [ "$(of p '.numbers.indexes >= 1')" = true ]
    file=$(sql "SELECT pg_relation_filepath('samples')")
    pg_stop
    head -c 100 /dev/urandom | dd of="$FORGE_PG_DIR/data/$file" bs=1 seek=$((5 * 8192 + 4000)) conv=notrunc status=none
    pg_start
    check q
    passed q
    check p
    failed p "table samples: invalid page in block 5 of relation $file"
    # The server counts it.
    check
    [ "$status" -eq 1 ]
    failed q "database $database: "
    failed q " checksum failure"
    [ "$(of q '.numbers.checksum_failures >= 1')" = true ]
    failed w "checksum failure"
}

@test "postgres: a data file whose first page is gone is found at once" {
    with_database
    checks "q: {kind: postgres, url: \"$url\", tables: [samples]}"
    file=$(sql "SELECT pg_relation_filepath('samples')")
    pg_stop
    head -c 100 /dev/urandom | dd of="$FORGE_PG_DIR/data/$file" bs=1 seek=4000 conv=notrunc status=none
    pg_start
    check
    failed q "table samples: invalid page in block 0 of relation $file"
}

@test "postgres: thorough needs amcheck, which finds an index in the wrong order" {
    with_database
    checks "p: {kind: postgres, url: \"$url\", tables: [samples], thorough: true}"
    check
    failed p "the extension amcheck, which is not installed in database $database"
    sql "CREATE SCHEMA \"My tools\"; CREATE EXTENSION amcheck SCHEMA \"My tools\""
    check
    passed p
    # An index whose function changes its mind.
    sql "CREATE FUNCTION fickle(int4, int4) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT CASE WHEN \$1 = \$2 THEN 0 WHEN \$1 > \$2 THEN 1 ELSE -1 END';
         CREATE OPERATOR CLASS fickle_ops FOR TYPE int4 USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 fickle(int4, int4);
         CREATE INDEX by_fickle ON samples (id fickle_ops)"
    check
    passed p
    sql "CREATE OR REPLACE FUNCTION fickle(int4, int4) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT CASE WHEN \$1 = \$2 THEN 0 WHEN \$1 > \$2 THEN -1 ELSE 1 END'"
    check
    failed p "index public.by_fickle: item order invariant violated"
}

# ---- HTTP ----

@test "http: status, text and size of the answer are judged" {
    serve http port
    port=$(<port)
    base=http://127.0.0.1:$port
    checks "ok: {kind: http, url: \"$base/ok\", body: all is well}" "body: {kind: http, url: \"$base/ok\", body: all is lost}" \
        "status: {kind: http, url: \"$base/closed\"}" "wanted: {kind: http, url: \"$base/closed\", status: 503}" \
        "other: {kind: http, url: \"$base/ok\", status: 204}" \
        "early: {kind: http, url: \"$base/early\", body: all is well}" \
        "late: {kind: http, url: \"$base/late\", body: all is well}" \
        "moved: {kind: http, url: \"$base/redirect\"}" "not-moved: {kind: http, url: \"$base/redirect\", status: 200}"
    check
    passed ok
    [ "$(text ok)" = "$base/ok: status 200, 12 B" ]
    [ "$(of ok .numbers.status)" -eq 200 ]
    failed body "$base/ok: status 200, without the expected text in 12 B"
    failed status "$base/closed: status 503, expected 200 to 399"
    passed wanted
    failed other "status 200, expected 204"
    passed early
    failed late "without the expected text in the first 1048576 B"
    passed moved
    failed not-moved "status 302, a redirect, which is not followed, expected 200"
}

@test "http: a server that is away, and a name that nobody has, are clear" {
    serve http port
    port=$(<port)
    kill -KILL "$pid"
    wait "$pid" || true
    checks "a: {kind: http, url: \"http://127.0.0.1:$port/ok\"}" "b: {kind: http, url: \"http://no-such-host.invalid/\"}"
    check
    failed a "http://127.0.0.1:$port/ok: Connection refused"
    failed b "http://no-such-host.invalid/: Couldn't resolve host name"
}

@test "http: a certificate that nobody signed is refused" {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=127.0.0.1 \
        -addext subjectAltName=IP:127.0.0.1 2>/dev/null
    cat key.pem cert.pem >both.pem
    serve http port both.pem
    checks "a: {kind: http, url: \"https://127.0.0.1:$(<port)/ok\"}"
    check
    failed a "certificate"
    # The same server with a certificate that is known passes: so the test can tell.
    curl -sf --noproxy '*' --cacert cert.pem "https://127.0.0.1:$(<port)/ok"
}

@test "http: proxies of the environment are not used" {
    serve http port
    checks "a: {kind: http, url: \"http://127.0.0.1:$(<port)/ok\"}"
    http_proxy=http://127.0.0.1:1 check
    passed a
}

@test "a hanging check costs its time-out once, and the others are done" {
    serve hang port
    many a.db
    checks "h1: {kind: http, url: \"http://127.0.0.1:$(<port)/\", timeout: 2s, every: 1h}" \
        "h2: {kind: http, url: \"http://127.0.0.1:$(<port)/\", timeout: 2s}" \
        "h3: {kind: http, url: \"http://127.0.0.1:$(<port)/\", timeout: 2s}" \
        "a: {kind: sqlite, path: a.db}" "t: {kind: tcp, address: \"127.0.0.1:$(<port)\"}"
    began=$(now_ms)
    check
    took=$(($(now_ms) - began))
    in_time "$began" 4500
    [ "$took" -ge 1900 ]
    failed h1 "no answer within 2 s"
    failed h2 "no answer within 2 s"
    failed h3 "no answer within 2 s"
    passed a
    passed t
    [ "$(of a '.duration_seconds < 1.9')" = true ]
    # No process of a check is left.
    wait_for no_process_named forge-check
}

# ---- sockets ----

@test "tcp: accepted, refused, unknown" {
    serve hang port
    port=$(<port)
    checks "a: {kind: tcp, address: \"127.0.0.1:$port\"}" "b: {kind: tcp, address: \"localhost:$port\"}" \
        "u: {kind: tcp, address: \"no-such-host.invalid:80\"}"
    check
    passed a
    passed b
    [[ "$(text a)" == "127.0.0.1:$port accepts connections ("* ]]
    [ "$(of a '.numbers.connect_seconds >= 0')" = true ]
    failed u "no-such-host.invalid:80: "
    kill -KILL "$pid"
    wait "$pid" || true
    check
    failed a "127.0.0.1:$port: Connection refused"
}

@test "tcp: an IPv6 address in brackets" {
    skip_unless "no IPv6 on loopback" python3 -c 'import socket; socket.create_server(("::1", 0), family=socket.AF_INET6)'
    checks 'a: {kind: tcp, address: "[::1]:1"}'
    check
    failed a "[::1]:1: Connection refused"
}

@test "unix: sockets of every type, and what is none" {
    deep=$T/$(printf 'd%.0s' {1..120})
    mkdir "$deep"
    serve unix ready1 "$T/stream" STREAM
    first=$pid
    serve unix ready2 "$deep/dgram" DGRAM
    serve unix ready3 "$T/packet" SEQPACKET
    : >file
    checks "s: {kind: unix, path: stream}" "d: {kind: unix, path: $deep/dgram}" "p: {kind: unix, path: packet}" \
        "f: {kind: unix, path: file}" "n: {kind: unix, path: none}"
    check
    passed s
    passed d
    passed p
    failed f "$T/file is not a socket"
    failed n "$T/none: No such file"
    kill -KILL "$first"
    wait "$first" || true
    check s
    failed s "$T/stream: no program listens"
}

# ---- processes and units ----

@test "process: alive, dead and zombie, by name" {
    cp "$(type -P sleep)" "$T/tested-by-forge-with-a-long-name"
    background "$T/tested-by-forge-with-a-long-name" 60
    cp "$(type -P true)" "$T/tested-zombie"
    serve zombie zombie "$T/tested-zombie"
    checks "long: {kind: process, process: tested-by-forge-with-a-long-name}" \
        "comm: {kind: process, process: tested-by-forge}" \
        "zombie: {kind: process, process: tested-zombie}" "none: {kind: process, process: no-such-process-x}"
    wait_for grep -qx tested-by-forge "/proc/${started[0]}/comm"
    check
    passed long
    [ "$(text long)" = "tested-by-forge-with-a-long-name runs as process ${started[0]}" ]
    passed comm
    failed zombie "tested-zombie has ended: process $(<zombie) is a zombie"
    failed none "no process no-such-process-x"
    kill -KILL "${started[0]}"
    wait "${started[0]}" || true
    check
    failed long "no process tested-by-forge-with-a-long-name"
}

@test "process: pid files" {
    background sleep 60
    printf '%s\nmore\n' "$pid" >alive.pid
    serve zombie zombie.pid "$(type -P true)"
    sleep 0 &
    echo "$!" >dead.pid
    wait "$!"
    echo nonsense >bad.pid
    echo "12x" >odd.pid
    # As after a restart of the host: the number belongs to another program.
    echo "${started[0]}" >old.pid
    touch -d '2 days ago' old.pid
    checks "alive: {kind: process, process: ./alive.pid}" "zombie: {kind: process, process: ./zombie.pid}" \
        "dead: {kind: process, process: ./dead.pid}" "bad: {kind: process, process: ./bad.pid}" \
        "odd: {kind: process, process: ./odd.pid}" "none: {kind: process, process: ./none.pid}" \
        "old: {kind: process, process: ./old.pid}"
    check
    passed alive
    [ "$(text alive)" = "process ${started[0]} (sleep) of $T/alive.pid runs" ]
    [ "$(of alive .numbers.name)" = sleep ]
    failed zombie "of $T/zombie.pid has ended: it is a zombie"
    failed dead "of $T/dead.pid does not exist"
    failed bad "does not begin with the number of a process"
    failed odd "does not begin with the number of a process"
    failed none "No such file"
    [[ "$(text old)" == *"(sleep) of $T/old.pid runs, but is younger than that file" ]]
}

@test "systemd: a host without it is told" {
    [ ! -e /run/systemd/system ] || skip "this host has systemd"
    checks "s: {kind: systemd, unit: ssh.service}"
    check
    failed s "ssh.service: this host was not started by systemd"
}

@test "systemd: what systemctl says is judged" {
    skip_unless "an ordinary user cannot mount" unshare --mount true
    skip_unless "no systemctl to cover" test -e /usr/bin/systemctl
    cat >systemctl <<'SH'
#!/bin/sh
for unit; do :; done
[ -z "$HOME$FORGE_HOME" ] || unit=environment
case $unit in
up.service) printf 'LoadState=loaded\nActiveState=active\nSubState=running\n' ;;
down.service) printf 'LoadState=loaded\nActiveState=failed\nSubState=failed\n' ;;
none.service) printf 'LoadState=not-found\nActiveState=inactive\nSubState=dead\n' ;;
-*) printf 'LoadState=loaded\nActiveState=active\nSubState=option\n' ;;
*) echo "Failed to connect to bus: $unit"; exit 1 ;;
esac
SH
    chmod 755 systemctl
    checks "up: {kind: systemd, unit: up.service}" "down: {kind: systemd, unit: down.service}" \
        "none: {kind: systemd, unit: none.service}" "lost: {kind: systemd, unit: lost.service}"
    unshare --mount sh -c 'mount -t tmpfs none /run && mkdir -p /run/systemd/system &&
        mount --bind systemctl /usr/bin/systemctl && "$FORGE" health check --json >"$1" 2>&1' sh "$out" || true
    cat "$out"
    passed up
    [ "$(text up)" = "up.service is active (running)" ]
    failed down "down.service is failed (failed)"
    failed none "none.service: systemd has no such unit"
    failed lost "lost.service: Failed to connect to bus: lost.service"
}

# ---- the host ----

# On a file system of its own: a loop file or, where there is no loop device, a small tmpfs.
small_disk() {
    truncate -s 16M image
    mkfs.ext4 -q -m 0 image
    mkdir disk
    mount -o loop image disk 2>/dev/null || {
        echo "# no loop device here: a tmpfs instead" >&3
        mount -t tmpfs -o size=16M,nr_inodes=2000 none disk
    }
}

# under_pressure SOME FULL: a check where the kernel tells these parts of the last 10 s.
under_pressure() {
    printf '%s avg10=%s avg60=1.00 avg300=2.00 total=3\n' some "$1" full "$2" >psi
    unshare --mount sh -c 'mount --bind psi /proc/pressure/memory && "$FORGE" health check --json >"$1" 2>&1' sh "$out" || true
    cat "$out"
}

# The numbers are ours. The test after this one has those of the kernel.
@test "memory: programs that wait for memory are noticed, from the number that is allowed on" {
    [ "$mode" = root ] || skip "an ordinary user cannot mount"
    [ -e /proc/pressure/memory ] || skip "this kernel does not tell the pressure on memory"
    checks "m: {kind: memory, max_pressure: 10%}" "n: {kind: memory}"
    under_pressure 0.00 0.00
    passed m
    # What waited while others went on is no shortage.
    under_pressure 95.00 10.00
    passed m
    [ "$(of m .numbers.pressure)" = 0.1 ]
    under_pressure 95.00 10.20
    failed m "all programs waited for memory 10.2 % of the time (10.0 % allowed)"
    passed n
    : >psi
    unshare --mount sh -c 'mount --bind psi /proc/pressure/memory && "$FORGE" health check --json >"$1" 2>&1' sh "$out" || true
    failed m "this kernel does not tell the pressure on memory"
    passed n
    check
    passed m
    [ "$(of m '.numbers.pressure | . >= 0 and . <= 1')" = true ]
}

# pressure_now: what the kernel says, as the check rounds it.
pressure_now() {
    python3 -c 'import re; print(int(float(re.search(r"^full avg10=(\S+)", open("/proc/pressure/memory").read(), re.M)[1]) * 10) / 1000)'
}
# The kernel computes the number every two seconds: it must be the same before and after the check.
same_pressure() {
    before=$(pressure_now)
    check
    [ "$before" = "$(pressure_now)" ]
}

@test "memory: the number is the kernel's own, also while a program really waits for memory" {
    [ -e /proc/pressure/memory ] || skip "this kernel does not tell the pressure on memory"
    checks "m: {kind: memory, max_pressure: 0.1%, when: demand}"
    # More file than the memory of its run holds, again and again; nothing else on this host runs short.
    head -c 96M /dev/urandom >big
    sync big
    cat >again.py <<'PY'
import os
f = os.open("big", os.O_RDONLY)
while True:
    os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED) # pages that others have read are charged to them
    for i in range(0, 96 << 20, 1 << 20):
        os.pread(f, 1 << 20, i)
PY
    background "$FORGE" run --memory 32M --timeout 2m -i big -i again.py -- sh -c "cd $T && exec python3 again.py"
    runner=$pid
    waits() { same_pressure && python3 -c 'import sys; sys.exit(float(sys.argv[1]) < 0.003)' "$before"; }
    if wait_for waits; then
        failed m "all programs waited for memory "
    else
        # On a host with much to do there is always a program that does not wait.
        echo "# no pressure could be provoked in half a minute: $(tr '\n' ' ' </proc/pressure/memory)" >&3
        wait_for same_pressure
    fi
    [ "$(of m ".numbers.pressure == $before")" = true ]
    kill -TERM "$runner" 2>/dev/null || true
    wait "$runner" || true
}

@test "disk: a full file system is noticed, in bytes and in files" {
    [ "$mode" = root ] || skip "an ordinary user cannot mount"
    small_disk
    checks "bytes: {kind: disk, path: disk, min_free: 4M, min_inodes: 10}" "part: {kind: disk, path: disk, min_free: 50%, min_inodes: 10}" \
        "files: {kind: disk, path: disk, min_free: 1K, min_inodes: 100}" "gone: {kind: disk, path: disk/none}"
    rc=0
    check
    passed bytes || rc=1
    passed part || rc=1
    passed files || rc=1
    failed gone "No such file" || rc=1
    head -c 30M /dev/zero >disk/filler 2>/dev/null || true
    check
    failed bytes "4.00 MiB needed" || rc=1
    failed part " free (" || rc=1
    rm disk/filler
    (cd disk && seq 1 20000 | xargs touch 2>/dev/null) || true
    check
    failed files "files can be made, 100 needed" || rc=1
    umount disk || umount -l disk
    [ "$rc" -eq 0 ]
}

@test "memory: thresholds in bytes and in parts" {
    checks "enough: {kind: memory, min_available: 1M}" "much: {kind: memory, min_available: 1000T}" \
        "part: {kind: memory, min_available: 100%}" "soft: {kind: memory, min_available: 1000T, severity: warn}"
    check
    passed enough
    failed much "available, "
    failed much " needed"
    failed part "needed"
    failed soft "needed"
    [ "$(of enough '.numbers.total_bytes > .numbers.available_bytes')" = true ]
    checks "soft: {kind: memory, min_available: 1000T, severity: warn}"
    check
    [ "$status" -eq 0 ]
}

# ---- secrets and wrong words ----

@test "secrets: a password in a URL is neither printed nor stored, whatever happens" {
    with_database
    serve http port
    port=$(<port)
    pg="@/$database?host=$FORGE_PG_DIR"
    checks "right: {kind: postgres, url: \"postgresql://asked:$secret$pg\", every: 1h}" \
        "wrong: {kind: postgres, url: \"postgresql://asked:x$secret$pg\", every: 1h}" \
        "query: {kind: postgres, url: \"postgresql://asked@/nodb?host=$FORGE_PG_DIR&password=$secret\", every: 1h}" \
        "away: {kind: postgres, url: \"postgresql://asked:$secret@127.0.0.1:1/$database\", every: 1h}" \
        "nobody: {kind: postgres, url: \"postgresql://$secret:$secret@/nodb?host=$FORGE_PG_DIR\", every: 1h}" \
        "coded: {kind: postgres, url: \"postgresql://asked:$secret%ZZ$pg\", every: 1h}" \
        "option: {kind: postgres, url: \"postgresql://asked@/x?pasword=$secret\", every: 1h}" \
        "web: {kind: http, url: \"http://user:$secret@127.0.0.1:$port/auth?token=$secret#$secret\", every: 1h}" \
        "web-wrong: {kind: http, url: \"http://user:x$secret@127.0.0.1:$port/auth\", every: 1h}" \
        "web-away: {kind: http, url: \"http://user:$secret@127.0.0.1:1/x?token=$secret\", every: 1h}" \
        "web-name: {kind: http, url: \"http://user:$secret@no-such-host.invalid/?token=$secret\", every: 1h}"
    check # which looks for the secret in all it prints; teardown does in FORGE_HOME
    passed right
    failed wrong "password authentication failed for user \"asked\""
    failed query "database \"nodb\" does not exist"
    failed away "Connection refused"
    failed coded "the URL cannot be used: invalid percent-encoded token"
    failed option "the URL cannot be used: invalid URI query parameter"
    passed web
    [ "$(text web)" = "http://127.0.0.1:$port/auth: status 200, 0 B" ]
    failed web-wrong "status 401"
    failed web-away "http://127.0.0.1:1/x: Connection refused"
    failed web-name "http://no-such-host.invalid/: "
    [ -s "$FORGE_HOME/health/right.json" ]
    "$FORGE" health check >"$out" 2>"$err" || true
    "$FORGE" config show >>"$out" 2>>"$err"
    "$FORGE" config show --json >>"$out" 2>>"$err"
    run grep -a "$secret" "$out" "$err"
    [ "$status" -eq 1 ]
}

@test "secrets: nor in an error about the configuration" {
    for url in "postgresql://u:a@$secret@h/db" "postgresql://u:a/$secret@h/db" "postgresql://u:$secret/db" \
        "mysql://u:$secret@h/db" "u:$secret" "postgresql://u:$secret x@h/db"; do
        checks "p: {kind: postgres, url: \"$url\"}"
        run "$FORGE" health check
        echo "$output"
        [ "$status" -ne 0 ]
        [[ "$output" == *"forge.yaml:3:"* ]]
        [[ "$output" == *"health.p.url"* ]]
        [[ "$output" != *"$secret"* ]]
    done
}

@test "an unknown check, kind or key is an error with the names there are" {
    checks "db: {kind: tcp, address: \"127.0.0.1:1\"}"
    run "$FORGE" health check dB
    [ "$status" -eq 1 ]
    [[ "$output" == *"unknown check 'dB' (have: db, disk, memory)"* ]]
    checks "db: {kind: mysql}"
    run "$FORGE" health check
    [ "$status" -ne 0 ]
    [[ "$output" == *"forge.yaml:3:"*"health.db.kind: 'mysql' is not one of disk, memory, sqlite"* ]]
    checks "db: {kind: http, adress: x}"
    run "$FORGE" health check
    [ "$status" -ne 0 ]
    [[ "$output" == *"adress"* ]]
    checks "db: {kind: tcp, address: localhost}"
    run "$FORGE" health check
    [ "$status" -ne 0 ]
    [[ "$output" == *"forge.yaml:3:"*"health.db.address: must be host:port"* ]]
}
