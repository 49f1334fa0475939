# server.bash: a server of a test's own, and requests to it; on top of store.bash.
# shellcheck shell=bash disable=SC2034,SC2154 # the tests' variables and ours
# SPDX-License-Identifier: Apache-2.0
load ../lib/store.bash

http_clients=$(realpath "$BATS_TEST_DIRNAME/../tools/http-clients.py")

# start_server [OPTION...]: $url, $token, $server (its pid).
start_server() {
    # What an earlier one has printed is not this one.
    rm -f "$T/serve.out"
    "$FORGE" serve --listen 127.0.0.1:0 --json "$@" >"$T/serve.out" 2>"$T/serve.err" </dev/null 3>&- &
    server=$!
    started+=("$server")
    patiently grep -q '"url"' "$T/serve.out" || { cat "$T/serve.err"; return 1; }
    url=$(jq -r .url "$T/serve.out")
    token=$(jq -r .token "$T/serve.out")
}

# stop_server [SIGNAL]: waits for its end; $status.
stop_server() {
    kill -s "${1:-TERM}" "$server"
    status=0
    wait "$server" || status=$?
}

# get PATH [CURL-OPTION...]: $code, the body in $T/body and $output, the headers in $T/headers.
get() {
    local path=$1
    shift
    code=$(curl -sS --max-time 60 -o "$T/body" -D "$T/headers" -w '%{http_code}' \
        -H "Authorization: Bearer $token" "$@" "$url$path") || return
    output=$(tr -d '\0' <"$T/body")
}

# post PATH JSON [CURL-OPTION...]
post() {
    local path=$1 body=$2
    shift 2
    get "$path" -H 'Content-Type: application/json' --data-binary "$body" "$@"
}

# answer FILTER: of the JSON that came.
answer() { jq -r "$1" "$T/body"; }

header() { tr -d '\r' <"$T/headers" | sed -n "s/^$1: //Ip"; }
