#!/usr/bin/env bats
# Clients that mean harm: too much, too slow, too strange. The server answers others meanwhile.
# SPDX-License-Identifier: Apache-2.0

load ../lib/server.bash
setup() { setup_store; }
teardown() { teardown_store; }

@test "a body above 1 MiB is refused" {
    start_server
    head -c 2000000 /dev/zero | tr '\0' ' ' >"$T/big"
    post /api/v1/runs "@$T/big"
    [ "$code" = 413 ]
    # The same without saying beforehand how long it is.
    post /api/v1/runs "@$T/big" -H 'Transfer-Encoding: chunked'
    [ "$code" = 413 ]
    get /api/v1/runs
    [ "$code" = 200 ]
}

# raw TEXT: sends it as it stands; the status.
raw() { printf %b "$1" | timeout 30 python3 -c 'import socket, sys, urllib.parse
u = urllib.parse.urlsplit(sys.argv[1])
s = socket.create_connection((u.hostname, u.port))
s.sendall(sys.stdin.buffer.read())
print(s.recv(100)[9:12].decode())' "$url"; }

@test "requests that mean two things are refused" {
    start_server
    [ "$(raw 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n')" = 200 ]
    [ "$(raw 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n')" = 400 ]
    [ "$(raw 'POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 30\r\n\r\n{}')" = 400 ]
    [ "$(raw 'POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}')" = 400 ]
    # A body that nobody reads would only take memory.
    [ "$(raw 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n')" = 400 ]
    [ "$(raw 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n')" = 400 ]
}

@test "few descriptors: the server still answers while as many logs are followed as it allows" {
    ulimit -n 400
    FORGE=${FORGE_PLAIN:-$FORGE}
    start_server
    start
    timeout 120 python3 "$http_clients" followers "$url" "$token" "$id" 150 >"$T/readers" &
    readers=$!
    patiently followed
    get /healthz || true
    open_gate
    wait "$readers" || true
    patiently get /healthz
    [ "$code" = 200 ]
}
followed() { [ "$(find "/proc/$server/fd" | wc -l)" -gt 100 ]; }

@test "headers and targets have a limit" {
    start_server
    get "/api/v1/runs?x=$(head -c 5000 /dev/zero | tr '\0' x)"
    [ "$code" = 414 ]
    get /api/v1/runs -H "X: $(head -c 60000 /dev/zero | tr '\0' x)"
    [[ "$code" =~ ^4 ]]
    get /api/v1/runs
    [ "$code" = 200 ]
}

@test "methods that there are not" {
    start_server
    for method in PUT DELETE OPTIONS PATCH TRACE; do
        get /api/v1/runs -X "$method"
        [[ "$code" =~ ^40[45]$ ]] || { echo "$method: $code"; return 1; }
    done
    get /api/v1/runs --head
    [ "$code" = 200 ]
    [ ! -s "$T/body" ] || grep -q '^HTTP/' "$T/body"
    post /api/v1/overview '{}'
    [ "$code" = 405 ]
}

@test "guessing tokens is slowed down, and others are answered" {
    start_server
    run python3 "$http_clients" guess "$url" 400
    echo "$output"
    [[ "$output" == *" 429" ]]
    [[ "$output" == *" 401"* ]]
    get /api/v1/runs
    [ "$code" = 200 ]
}

@test "clients that send a byte now and then are cut off, and keep nobody out" {
    start_server
    timeout 100 python3 "$http_clients" slow "$url" 300 >"$T/slow" &
    slow=$!
    patiently grep -q 'all connected' "$T/slow"
    get /api/v1/runs
    [ "$code" = 200 ]
    wait "$slow"
    cat "$T/slow"
    grep -q '^300 were cut off$' "$T/slow"
}

@test "any bytes as requests: the server goes on" {
    start_server
    timeout 200 python3 "$http_clients" fuzz "$url" "$token" 3000 "$RANDOM" >"$T/fuzz" || { cat "$T/fuzz"; false; }
    cat "$T/fuzz"
    get /api/v1/runs
    [ "$code" = 200 ]
    stop_server
    [ "$status" -eq 0 ]
    [ ! -s "$T/serve.err" ] || { cat "$T/serve.err"; return 1; }
}

@test "killed and started again under load: clients see only whole answers" {
    start_server
    for i in 1 2 3; do "$FORGE" run -q -- echo "$i"; done
    port=${url##*:}
    token=$("$FORGE" token new 2>/dev/null)
    timeout 120 python3 "$http_clients" load "$url" "$token" "$T/stop" >"$T/load" &
    load=$!
    for i in 1 2 3 4 5; do
        patiently grep -q "^$i " "$T/load"
        kill -9 "$server"
        wait "$server" || true
        # The port is free as soon as the process is gone.
        "$FORGE" serve -q --listen "127.0.0.1:$port" >/dev/null 2>"$T/serve.err" 3>&- &
        server=$!
        started+=("$server")
        echo "$i" >"$T/again"
        patiently get /healthz
    done
    touch "$T/stop"
    wait "$load"
    cat "$T/load"
    grep -q 'no torn answer' "$T/load"
}

@test "a log of one line of 64 MiB is read in parts" {
    # A sanitizer takes memory of its own.
    FORGE=${FORGE_PLAIN:-$FORGE}
    start_server
    "$FORGE" run -q --output-limit 80M -- sh -c 'head -c 67108864 /dev/zero | tr "\0" a'
    id=$("$FORGE" ps -q)
    get "/api/v1/runs/$id/logs/stdout?tail=10"
    [ "$output" = aaaaaaaaaa ]
    [ "$(header X-Log-Size)" = 67108864 ]
    before=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$server/status")
    get "/api/v1/runs/$id/follow"
    [ "$(grep -c '^event: end' "$T/body")" -eq 1 ]
    after=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$server/status")
    echo "most memory: $before KiB before, $after KiB after"
    [ $((after - before)) -lt 32768 ]
}
