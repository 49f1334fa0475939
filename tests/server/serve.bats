#!/usr/bin/env bats
# forge serve from outside: who may ask, what is answered, and that it touches no run.
# SPDX-License-Identifier: Apache-2.0

load ../lib/server.bash
setup() { setup_store; }
teardown() { teardown_store; }

# ---- who may ask

@test "a request needs a token that is known" {
    start_server
    get /api/v1/runs
    [ "$code" = 200 ]
    token=forge_0000000000000000000000000000000000000000000000000000000000000000
    get /api/v1/runs
    [ "$code" = 401 ]
    [ "$(answer .error.code)" = unauthorized ]
    [ "$(header WWW-Authenticate)" = Bearer ]
    code=$(curl -s -o /dev/null -w '%{http_code}' "$url/api/v1/runs")
    [ "$code" = 401 ]
    code=$(curl -s -o /dev/null -w '%{http_code}' "$url/api/v1/runs?token=$token")
    [ "$code" = 401 ]
    # What needs none says nothing about runs.
    code=$(curl -s -o /dev/null -w '%{http_code}' "$url/healthz")
    [ "$code" = 200 ]
}

@test "a token may do what it was made for, until it is revoked or expires" {
    start_server
    token=$("$FORGE" token new looker 2>/dev/null)
    get /api/v1/overview
    [ "$code" = 200 ]
    [ "$(answer .access)" = read ]
    post /api/v1/runs '{"command": ["true"]}'
    [ "$code" = 403 ]
    [[ "$(answer .error.hint)" == *"--operator"* ]]
    "$FORGE" token revoke looker
    get /api/v1/overview
    [ "$code" = 401 ]
    token=$("$FORGE" token new --operator --expires 1s doer 2>/dev/null)
    get /api/v1/overview
    [ "$code" = 200 ] || [ "$code" = 401 ]
    expired() { get /api/v1/overview && [ "$code" = 401 ]; }
    patiently expired
    # Neither the list nor the file has a token.
    [ "$("$FORGE" token list --json | jq -r '.[0].name')" = doer ]
    run grep -c "$token" "$FORGE_HOME/tokens.json"
    [ "$output" = 0 ]
}

@test "a token has a name, and of two with one name each has an id" {
    run "$FORGE" token new 'a b'
    [ "$status" -eq 1 ]
    [[ "$output" == *"NAME: 'a b' is not a name for a token (write 1 to 64 letters, digits"* ]]
    "$FORGE" token new twin 2>/dev/null
    "$FORGE" token new twin 2>/dev/null
    run "$FORGE" token revoke twin
    [ "$status" -eq 1 ]
    for id in $("$FORGE" token list --json | jq -r '.[].id'); do
        [[ "$output" == *"2 tokens are named 'twin': "*"$id (made 2"*"Revoke each by its id"* ]] || { echo "$output"; return 1; }
        "$FORGE" token revoke "$id"
    done
    [ "$("$FORGE" token list --json)" = '[]' ]
}

@test "the token of the link ends with the server" {
    start_server
    old=$token
    stop_server
    start_server
    token=$old
    get /api/v1/runs
    [ "$code" = 401 ]
}

@test "a page of another site gets nothing" {
    start_server
    get /api/v1/runs -H 'Host: evil.example.org'
    [ "$code" = 403 ]
    get /healthz -H 'Host: evil.example.org'
    [ "$code" = 403 ]
    get /api/v1/runs -H 'Origin: http://evil.example.org'
    [ "$code" = 403 ]
    post /api/v1/runs '{"command": ["true"]}' -H 'Origin: null'
    [ "$code" = 403 ]
    # A form, which needs no permission to be sent elsewhere, has another type.
    get /api/v1/runs --data 'command=true'
    [ "$code" = 400 ]
    [ -z "$("$FORGE" ps -qa)" ]
    get /api/v1/runs -H "Origin: $url"
    [ "$code" = 200 ]
    [ -z "$(header Access-Control-Allow-Origin)" ]
}

@test "behind a proxy the server answers to the name that it was given" {
    start_server --name forge.example.org
    get /api/v1/runs -H 'Host: forge.example.org' -H 'Origin: https://forge.example.org'
    [ "$code" = 200 ]
    # What a proxy passes on comes from elsewhere, also when the proxy is here.
    code=$(curl -s -o /dev/null -w '%{http_code}' "$url/metrics")
    [ "$code" = 401 ]
    get /metrics
    [ "$code" = 200 ]
}

@test "an address that others can reach needs a stored token" {
    run "$FORGE" serve --listen 0.0.0.0:0
    [ "$status" -eq 1 ]
    [[ "$output" == *"there is no token"*"forge token new"* ]]
    "$FORGE" token new x 2>/dev/null >"$T/token"
    "$FORGE" serve --listen 0.0.0.0:0 >"$T/serve.out" 2>"$T/serve.err" 3>&- &
    started+=($!)
    patiently grep -q '^http://0.0.0.0:' "$T/serve.out"
    # No link, because its token would be everybody's who sees the terminal of a daemon.
    run grep -c token= "$T/serve.out"
    [ "$output" = 0 ]
    patiently grep -q "not encrypted" "$T/serve.err"
    url=$(sed 's/0\.0\.0\.0/127.0.0.1/' "$T/serve.out") token=$(<"$T/token")
    get /api/v1/overview
    [ "$code" = 200 ]
    # /metrics, too, is not for everybody there.
    code=$(curl -s -o /dev/null -w '%{http_code}' "$url/metrics")
    [ "$code" = 401 ]
}

# ---- runs

@test "a run is started, followed, shown and its outputs fetched" {
    start_server
    post /api/v1/runs '{"command": ["sh", "-c", "echo out; echo err >&2; printf 0123456789 > a.txt"], "id": "fit", "limits": {"memory": "64M"}, "env": {"A": "b"}}'
    [ "$code" = 201 ]
    id=$(answer .run_id)
    finished "$id"
    get "/api/v1/runs/$id"
    [ "$(answer .record.status)" = succeeded ]
    [ "$(answer .record.limits.memory_bytes)" = 67108864 ]
    [ "$(answer .record.analysis_id)" = fit ]
    [ "$(answer .live)" = null ]
    get "/api/v1/runs/$id/logs/stdout"
    [ "$output" = out ]
    [ "$(header X-Log-Size)" = 4 ]
    get "/api/v1/runs/$id/logs/stderr?tail=2"
    [ "$output" = r ]
    get "/api/v1/runs/$id/outputs"
    [ "$(answer '.outputs[0].path')" = a.txt ]
    [ "$(answer .total)" = 1 ]
    get "/api/v1/runs/$id/outputs/0/content"
    [ "$output" = 0123456789 ]
    [ "$(header Content-Type)" = application/octet-stream ]
    [ "$(header Content-Disposition)" = 'attachment; filename="a.txt"' ]
    get "/api/v1/runs/$id/outputs/0/content" -H 'Range: bytes=2-4'
    [ "$code" = 206 ]
    [ "$output" = 234 ]
    [ "$(header Content-Range)" = 'bytes 2-4/10' ]
    get "/api/v1/runs/$id/outputs/0/content" -H 'Range: bytes=10-'
    [ "$code" = 416 ]
    get "/api/v1/runs/$id/outputs/1/content"
    [ "$code" = 404 ]
    get "/api/v1/runs/$id/events"
    [ "$(answer '[.events[].status] | index("succeeded") != null')" = true ]
    # It is a run as of the command line.
    [ "$("$FORGE" show --json "$id" | jq -r '.asked.env[0]')" = A=b ]
}

@test "a refused run says why, and nothing is started" {
    start_server
    post /api/v1/runs '{"command": ["true"], "limits": {"memory": "900T"}}'
    [ "$code" = 400 ]
    [ "$(answer .error.code)" = refused ]
    [[ "$(answer .error.message)" == *"is more than all analyses on this host may have"* ]]
    post /api/v1/runs '{"command": ["true"], "runtime": "nope"}'
    [ "$code" = 400 ]
    [[ "$(answer .error.message)" == *nope* ]]
    post /api/v1/runs '{"comand": ["true"]}'
    [ "$code" = 400 ]
    post /api/v1/runs '{"command": ["true"], "inputs": ["x"]}'
    [ "$code" = 400 ]
    post /api/v1/runs '[1]'
    [ "$code" = 400 ]
    post /api/v1/runs '{"command": ["true"], "command": ["false"]}'
    [ "$code" = 400 ]
    [ -z "$("$FORGE" ps -q --status succeeded)" ]
}

@test "with a key a run is started once" {
    start_server
    post /api/v1/runs '{"command": ["true"], "key": "k"}'
    [ "$code" = 201 ]
    first=$(answer .run_id)
    post /api/v1/runs '{"command": ["true"], "key": "k"}'
    [ "$code" = 200 ]
    [ "$(answer .run_id)" = "$first" ]
    finished "$first"
}

@test "a run is killed and run again with more" {
    start_server
    start
    post "/api/v1/runs/$id/kill" '{}'
    [ "$code" = 202 ]
    get "/api/v1/runs/$id"
    [ "$(answer .record.status)" = cancelled ]
    post "/api/v1/runs/$id/kill" '{}'
    [ "$code" = 409 ]
    open_gate
    post "/api/v1/runs/$id/rerun" '{"limits": {"memory": "96M"}}'
    [ "$code" = 201 ]
    again=$(answer .run_id)
    finished "$again"
    [ "$(of "$again" .limits.memory_bytes)" = 100663296 ]
    [ "$(of "$again" .rerun_of)" = "$id" ]
    post "/api/v1/runs/$id/resume" '{}'
    [ "$code" = 201 ]
    finished "$(answer .run_id)"
    post "/api/v1/runs/$again/resume" '{}'
    [ "$code" = 400 ]
    [[ "$(answer .error.message)" == *"has succeeded"* ]]
}

@test "a step of a pipeline is resumed with more, and the pipeline goes on" {
    mkdir p
    printf '%s\n' 'name: hungry' 'params: {n: 1}' 'steps:' '  b: {run: "head -c 60M /dev/zero | tail -c 59M | wc -c >/dev/null; echo $n >p", outputs: [p], limits: {memory: 40M}}' \
        '  c: {inputs: {p: b/p}, run: "cat $p >q", outputs: [q]}' >p/pipeline.yaml
    run "$FORGE" pipeline run -q p -p n=7
    [ "$status" -eq 1 ]
    id=$("$FORGE" ps -a --json --analysis hungry.b | jq -r .run_id)
    start_server
    post "/api/v1/runs/$id/rerun" '{}'
    [ "$code" = 400 ]
    [[ "$(answer .error.hint)" == *"forge pipeline run "*" -p n=7 --force b"* ]]
    post "/api/v1/runs/$id/resume" '{"limits": {"memory": "300M"}}'
    [ "$code" = 201 ]
    again=$(answer .run_id)
    [ "$again" != "$id" ]
    finished "$again"
    [ "$(of "$again" .limits.memory_bytes)" = 314572800 ]
    has_c() { [ "$("$FORGE" ps -a --json --status succeeded --analysis hungry.c | wc -l)" -eq 1 ]; }
    patiently has_c
    [ "$("$FORGE" outputs --cat q hungry.c)" = 7 ]
}

@test "a step that is resumed and waits for others has no run yet" {
    mkdir -p p gate
    chmod 755 . gate
    printf '%s\n' 'name: late' 'steps:' "  a: {run: 'until [ -e $PWD/gate/\$n ]; do sleep 0.05; done; echo \$n >o', env: {n: one}, outputs: [o]}" \
        '  b: {inputs: {o: a/o}, run: "exit 3", outputs: [x]}' >p/pipeline.yaml
    configure "read_only: [$PWD/gate]"
    touch gate/one
    run "$FORGE" pipeline run -q p
    [ "$status" -eq 1 ]
    id=$("$FORGE" ps -a --json --analysis late.b | jq -r .run_id)
    sed -i 's/n: one/n: two/' p/pipeline.yaml
    start_server
    post "/api/v1/runs/$id/resume" '{"network": "host"}'
    [ "$code" = 400 ]
    [[ "$(answer .error.message)" == *"--network is not for a step of a pipeline"* ]]
    post "/api/v1/runs/$id/resume" '{}'
    [ "$code" = 202 ]
    [ "$(answer '[.run_id, .pipeline, .task] | tojson')" = '[null,"late","b"]' ]
    touch gate/two
    has_new() { [ "$("$FORGE" ps -a --json --status failed --analysis late.b | wc -l)" -eq 2 ]; }
    patiently has_new
}

@test "live runs show what they use, queued ones why they wait" {
    configure 'host:' '  budget:' '    cpus: 1'
    start_server
    start --cpus 1
    first=$id
    submit --cpus 1 -- true
    waits() { get /api/v1/queue && [ "$(answer '.queued[0].why')" = "waits for 1 CPU: 1 of 1 in use" ]; }
    patiently waits
    get /api/v1/overview
    [ "$(answer '.running[0].run_id')" = "$first" ]
    [ "$(answer '.running[0].live.memory_bytes > 0')" = true ]
    [ "$(answer .budget.cpus_used)" = 1.0 ] || [ "$(answer .budget.cpus_used)" = 1 ]
    open_gate
    finished "$id"
}

@test "listings are filtered and have pages" {
    start_server
    for i in 1 2 3 4 5; do "$FORGE" run -q --id "a$i" -- true; done
    run "$FORGE" run -q --id bad -- false
    get '/api/v1/runs?limit=2'
    [ "$(answer '[.runs[].analysis_id] | join(" ")')" = "bad a5" ]
    get "/api/v1/runs?limit=2&after=$(answer .next)"
    [ "$(answer '[.runs[].analysis_id] | join(" ")')" = "a4 a3" ]
    get "/api/v1/runs?limit=2&after=$(answer .next)"
    get "/api/v1/runs?limit=2&after=$(answer .next)"
    [ "$(answer '.runs | length')" = 0 ]
    [ "$(answer .next)" = null ]
    get '/api/v1/runs?status=failed'
    [ "$(answer '[.runs[].analysis_id] | join(" ")')" = bad ]
    get '/api/v1/runs?analysis=a%3F&limit=500'
    [ "$(answer '.runs | length')" = 5 ]
    get '/api/v1/runs?since=1h&until=2020-01-01'
    [ "$(answer '.runs | length')" = 0 ]
    get '/api/v1/runs?sort=wall&limit=3'
    [ "$(answer '.runs | length')" = 3 ]
    for wrong in limit=0 limit=501 limit=x status=nope sort=x after=x since=x 'sort=wall&after=01m7r16rmnfn6fpm5f32f6kzd5'; do
        get "/api/v1/runs?$wrong"
        [ "$code" = 400 ] || { echo "$wrong: $code"; return 1; }
    done
    get /api/v1/overview
    [ "$(answer '.failures[0].analysis_id')" = bad ]
    [ "$(answer .counts.succeeded)" = 5 ]
}

@test "what is not there is not taken for empty, and a store that is away not for a run that is not there" {
    start_server
    for path in events outputs samples logs/stdout follow; do
        get "/api/v1/runs/01m7r16rmnfn6fpm5f32f6kzd5/$path"
        [ "$code" = 404 ] || { echo "$path: $code"; return 1; }
    done
    post /api/v1/runs/01m7r16rmnfn6fpm5f32f6kzd5/rerun '{}'
    [ "$code" = 404 ]
    # Tokens that cannot be read are not wrong ones.
    token=$("$FORGE" token new 2>/dev/null)
    get /api/v1/runs
    [ "$code" = 200 ]
    echo '[' >"$FORGE_HOME/tokens.json"
    get /api/v1/runs
    [ "$code" = 503 ]
    [ "$(answer .error.code)" = tokens ]
    run "$FORGE" token new --expires 3000000d
    [ "$status" -eq 1 ]
}

@test "a parameter that a path does not have is refused, with those that it has" {
    start_server
    "$FORGE" run -q -- echo 0123456789
    id=$("$FORGE" ps -q)
    for wrong in 'runs?foo=1' 'runs?state=killed' 'runs?open=maybe' 'runs?open' 'runs?parts=yes' 'runs?limit=1&limit=2' "runs/$id?full=1" \
        "runs/$id/logs/stdout?offset=5&length=4" "runs/$id/follow?offset=2" "runs/$id/outputs?page=2" "runs/$id/outputs/0/content?preview=2" \
        'overview?x=1' 'runtimes?x=1' 'openapi.json?x=1'; do
        get "/api/v1/$wrong"
        [ "$code" = 400 ] || { echo "$wrong: $code"; return 1; }
    done
    get '/api/v1/runs?state=killed'
    [[ "$(answer .error.message)" == "this path has no parameter 'state' (have: status, reason, runtime, "*", limit, after)" ]]
    get "/api/v1/runs/$id/logs/stdout?offset=5"
    [ "$(answer .error.message)" = "this path has no parameter 'offset' (have: tail, ticket)" ]
    get '/api/v1/runs?open=maybe'
    [ "$(answer .error.message)" = "open: 'maybe' is none of 0, 1, false, true" ]
    post "/api/v1/runs/$id/kill?now=1" '{}'
    [ "$code" = 400 ]
    # Who may not ask does not hear what there is.
    code=$(curl -s -o /dev/null -w '%{http_code}' "$url/api/v1/runs?foo=1")
    [ "$code" = 401 ]
    for right in 'runs?open=0' 'runs?open=true&parts=false&reverse=1' 'runs?' 'runs?status='; do
        get "/api/v1/$right"
        [ "$code" = 200 ] || { echo "$right: $code $output"; return 1; }
    done
}

@test "a wrong word is refused with the words that there are" {
    start_server
    get '/api/v1/runs?status=kiled'
    [ "$code" = 400 ]
    [ "$(answer .error.message)" = "status: there is no 'kiled' (have: queued, preparing, running, collecting, succeeded, failed, killed, cancelled, corrupted, lost, rejected)" ]
    get '/api/v1/runs?reason=memry'
    [ "$code" = 400 ]
    [[ "$(answer .error.message)" == "reason: there is no 'memry' (have: exit, signal, wall_time, "*", admission)" ]]
    # They are those of the manual.
    get '/api/v1/openapi.json'
    for reason in $(answer '.paths["/api/v1/runs"].get.parameters[] | select(.name == "reason").schema.enum[]'); do
        grep -q "^\(\*[a-z_]*\*, \)*\*$reason\*" "$BATS_TEST_DIRNAME/../../man/forge-run.1.scd" || { echo "$reason"; return 1; }
        code=$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" "$url/api/v1/runs?reason=$reason")
        [ "$code" = 200 ] || { echo "$reason: $code"; return 1; }
    done
    post /api/v1/runs '{"command": ["true"], "extra": 1}'
    [ "$code" = 400 ]
    [[ "$(answer .error.message)" == "there is no key 'extra' (have: command, runtime, "*", limits, keep)" ]]
    post /api/v1/runs 'command=true'
    [[ "$(answer .error.message)" == "the body is no valid JSON: line 1, column "* ]]
    post /api/v1/runs '5'
    [ "$(answer .error.message)" = "the body must be a JSON object" ]
    get /api/v1/runs -H 'Content-Type: text/plain' --data '{"command": ["true"]}'
    [ "$(answer .error.message)" = "the body must be application/json" ]
    [ -z "$("$FORGE" ps -qa)" ]
}

@test "a method that a path does not have is refused with those that it has" {
    start_server
    get /api/v1/runs -X DELETE
    [ "$code" = 405 ]
    [ "$(header Allow)" = "GET, HEAD, POST" ]
    [ "$(answer .error.message)" = "this path has no method DELETE (have: GET, HEAD, POST)" ]
    post /api/v1/overview '{}'
    [ "$code" = 405 ]
    [ "$(header Allow)" = "GET, HEAD" ]
    get /api/v1/tickets
    [ "$code" = 405 ]
    [ "$(header Allow)" = POST ]
}

@test "a POST without a body has an empty one" {
    start_server
    start
    post "/api/v1/runs/$id/kill" '{"now": true}'
    [ "$code" = 400 ]
    [ "$(answer .error.message)" = "there is no key 'now': the body is {}" ]
    get "/api/v1/runs/$id/kill" -X POST
    [ "$code" = 202 ]
    get "/api/v1/runs/$id/rerun" -X POST
    [ "$code" = 201 ]
    open_gate
    finished "$(answer .run_id)"
    get /api/v1/runs -X POST
    [ "$code" = 400 ]
    [[ "$(answer .error.message)" == "command: "*" is needed" ]]
}

@test "the page is compressed for those who take that" {
    start_server
    page() { curl -sS -o "$T/body" -D "$T/headers" "$@" "$url/"; }
    for how in 'Accept-Encoding: identity' 'Accept-Encoding:' 'Accept-Encoding: gzip;q=0' 'Accept-Encoding: br'; do
        page -H "$how"
        [ -z "$(header Content-Encoding)" ] || { echo "$how"; return 1; }
        [ "$(header Vary)" = Accept-Encoding ]
        grep -q '<title>' "$T/body"
    done
    plain=$(header ETag)
    cp "$T/body" "$T/plain"
    page -H 'Accept-Encoding: gzip, br'
    [ "$(header Content-Encoding)" = gzip ]
    [ "$(header ETag)" != "$plain" ]
    gzip -dc <"$T/body" | cmp - "$T/plain"
}

# ---- what is no run, and no path

@test "no path of a request is opened" {
    start_server
    "$FORGE" run -q -- sh -c 'echo x > a.txt'
    id=$("$FORGE" ps -q)
    for path in "/api/v1/runs/$id/logs/..%2frecord.json" "/api/v1/runs/$id/logs/record.json" "/api/v1/runs/..%2f..%2fetc/logs/stdout" \
        "/api/v1/runs/$id/outputs/..%2f0/content" "/api/v1/runs/$id/outputs/0x0/content" "/api/v1/runs/last" "/api/v1/runs/${id:0:8}" \
        "/api/v1/runtimes/..%2fx" "/api/v1/runtimes/--help" "/api/v1/pipelines/..%2fruns" "/api/v1/pipelines/..%2f..%2f..%2fetc" \
        '/api/v1/runs/%00' '/../../etc/passwd' '/%2e%2e/%2e%2e/etc/passwd' "/api/v1/runs/${id}x"; do
        get "$path" --path-as-is
        [[ "$code" =~ ^40[04]$ ]] || { echo "$path: $code $output"; return 1; }
    done
}

@test "a preview is for a frame without scripts, and a ticket for one path" {
    start_server
    "$FORGE" run -q -- sh -c 'echo "<script>alert(1)</script>" > a.html; echo x > b.pdf'
    id=$("$FORGE" ps -q)
    get "/api/v1/runs/$id/outputs/0/content?preview=1"
    [ "$(header Content-Type)" = 'text/html; charset=utf-8' ]
    [[ "$(header Content-Security-Policy)" == "sandbox; default-src 'none'"* ]]
    [ "$(header X-Content-Type-Options)" = nosniff ]
    get "/api/v1/runs/$id/outputs/1/content?preview=1"
    [ "$code" = 400 ]
    path="/api/v1/runs/$id/outputs/0/content?preview=1"
    post /api/v1/tickets "{\"path\": \"$path\"}"
    ticket=$(answer .url)
    fetch() { curl -s -o "$T/body" -w '%{http_code}' --path-as-is "$@"; }
    [ "$(fetch "$url$ticket")" = 200 ]
    grep -q alert "$T/body"
    [ "$(fetch "$url${ticket/outputs\/0/outputs/1}")" = 401 ]
    [ "$(fetch "$url${ticket/preview=1/preview=0}")" = 401 ]
    [ "$(fetch "$url${ticket}0")" = 401 ]
    [ "$(fetch -X POST -H 'Content-Type: application/json' -d '{}' "$url${ticket}")" = 405 ]
    [ "$(fetch "$url/api/v1/runs/$id?ticket=${ticket##*=}")" = 401 ]
    post /api/v1/tickets '{"path": "/api/v1/overview"}'
    [ "$code" = 400 ]
    # Another server has another key.
    stop_server
    start_server
    [ "$(fetch "$url$ticket")" = 401 ]
}

@test "a damaged output is not handed out" {
    start_server
    "$FORGE" run -q -- sh -c 'echo right > a.txt'
    id=$("$FORGE" ps -q)
    object=$FORGE_HOME/$(of "$id" '.outputs[0].stored_as')
    chmod u+w "$object"
    echo wrong >"$object"
    get "/api/v1/runs/$id/outputs/0/content"
    [ "$code" = 410 ]
    [ "$(answer .error.code)" = damaged ]
    run "$FORGE" verify
    get "/api/v1/runs/$id/outputs"
    [ "$(answer '.outputs[0].damaged')" = true ]
}

@test "outputs come in pages" {
    start_server
    "$FORGE" run -q -- sh -c 'for i in $(seq 250); do echo $i > f$i; done'
    id=$("$FORGE" ps -q)
    get "/api/v1/runs/$id/outputs"
    [ "$(answer '.outputs | length')" = 200 ]
    get "/api/v1/runs/$id/outputs?after=$(answer .next)"
    [ "$(answer '.outputs | length')" = 50 ]
    [ "$(answer '.outputs[0].index')" = 200 ]
    [ "$(answer .next)" = null ]
}

@test "every answer is as docs/openapi.json says" {
    mkdir data
    printf 'name: demo\nsteps:\n  a: {foreach: {i: [1, 2]}, run: "echo $i > a.txt", outputs: [a.txt]}\n  b: {inputs: {x: a/a.txt}, run: "false", outputs: [b.txt]}\n' >p.yaml
    run "$FORGE" pipeline run -q p.yaml
    "$FORGE" run -q -- sh -c 'echo x; echo y > b.csv'
    export FORGE_DATADIR=$T/data-of-forge
    mkdir "$FORGE_DATADIR"
    cp -r "$BATS_TEST_DIRNAME/../../examples/runtimes" "$FORGE_DATADIR/runtimes.d"
    start_server
    run python3 "$http_clients" check "$url" "$token" "$BATS_TEST_DIRNAME/../../docs/openapi.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *" paths are as described"* ]]
}

# ---- live logs

@test "a log is followed to its end, and from where it was left" {
    start_server
    start
    curl -sN --max-time 60 -H "Authorization: Bearer $token" "$url/api/v1/runs/$id/follow" >"$T/events" &
    reader=$!
    started+=("$reader")
    patiently grep -q '"text":"ready\\n"' "$T/events"
    patiently grep -q '"status":"running"' "$T/events"
    open_gate
    wait "$reader"
    [ "$(grep -c '^event: end' "$T/events")" -eq 1 ]
    [[ "$(tail -n 2 "$T/events")" == *'"status":"succeeded"'* ]]
    # The same again from the middle, of a run that is over.
    get "/api/v1/runs/$id/follow?from=3"
    grep -q '"offset":6,"text":"dy\\n"' "$T/body"
    get "/api/v1/runs/$id/follow?stream=stderr"
    [[ "$output" == *"event: end"* ]]
    get "/api/v1/runs/$id/follow?stream=record.json"
    [ "$code" = 400 ]
}

@test "a reader that comes again goes on where it was" {
    start_server
    "$FORGE" run -q -- printf 'one\ntwo\n'
    id=$("$FORGE" ps -q)
    get "/api/v1/runs/$id/follow"
    [ "$(sed -n 's/^id: //p' "$T/body" | tail -n 1)" = 8 ]
    [ "$(grep -c '^id: ' "$T/body")" = "$(grep -c '^event: ' "$T/body")" ]
    get "/api/v1/runs/$id/follow" -H 'Last-Event-ID: 4'
    grep -q '"offset":8,"text":"two\\n"' "$T/body"
    run ! grep -q 'one' "$T/body"
    # A browser sends it with the address that it had.
    get "/api/v1/runs/$id/follow?from=1" -H 'Last-Event-ID: 8'
    run ! grep -q '^event: log' "$T/body"
    grep -q '^event: end' "$T/body"
    get "/api/v1/runs/$id/follow" -H 'Last-Event-ID: x'
    [ "$code" = 400 ]
    [[ "$(answer .error.message)" == "Last-Event-ID: 'x' is not a whole number from 0 to "* ]]
}

@test "bytes that are no text arrive as text" {
    start_server
    "$FORGE" run -q -- printf 'a\377\303\244\033[31m\303'
    id=$("$FORGE" ps -q)
    get "/api/v1/runs/$id/follow"
    [ "$(sed -n 's/^data: {"offset"/{"offset"/p' "$T/body" | head -n 1 | jq -r .text)" = $'a\uFFFDä\033[31m\uFFFD' ]
    get "/api/v1/runs/$id/logs/stdout"
    cmp "$T/body" <(printf 'a\377\303\244\033[31m\303')
}

@test "no character is cut where a chunk of a log ends" {
    start_server
    "$FORGE" run -q -- sh -c 'printf a; i=0; while [ $i -lt 10000 ]; do printf é; i=$((i + 1)); done'
    id=$("$FORGE" ps -q)
    get "/api/v1/runs/$id/follow"
    run ! grep -q $'\uFFFD' "$T/body"
    [ "$(sed -n 's/^data: {"offset"/{"offset"/p' "$T/body" | jq -j .text | wc -m)" -eq 10001 ]
}

@test "a busy log keeps no other one waiting" {
    [ "${FORGE_TEST_STORE:-sqlite}" = sqlite ] || skip_unless "SQLite only" false
    start_server
    submit -i gate -- sh -c "until [ -e $T/gate/open ]; do echo x; sleep 0.05; done"
    busy=$id
    is_in "$busy" running
    # A run of another FORGE_HOME has no directory that the server could watch.
    store=sqlite:$FORGE_HOME/forge.db
    id=$(FORGE_HOME=$T/home2 "$FORGE" submit --store "$store" -- sh -c 'i=0; while [ $i -lt 20 ]; do echo line$i; i=$((i + 1)); sleep 0.2; done')
    curl -sN --max-time 100 -H "Authorization: Bearer $token" "$url/api/v1/runs/$busy/follow" >"$T/busy" &
    started+=($!)
    patiently grep -q '^event: log' "$T/busy"
    get "/api/v1/runs/$id/follow" --max-time 100
    grep -q 'line19' "$T/body"
    grep -q '^event: end' "$T/body"
    open_gate
    finished "$busy"
    rm -rf "$T/home2"
}

@test "a follower of a queued run gets its log when it starts" {
    configure 'host:' '  budget:' '    cpus: 1'
    start_server
    start --cpus 1
    submit --cpus 1 -- echo late
    curl -sN --max-time 60 -H "Authorization: Bearer $token" "$url/api/v1/runs/$id/follow" >"$T/events" &
    reader=$!
    started+=("$reader")
    patiently grep -q '"status":"queued"' "$T/events"
    open_gate
    wait "$reader"
    grep -q '"text":"late\\n"' "$T/events"
    grep -q '^event: end' "$T/events"
}

@test "200 readers of one log get all of it, in 40 MiB" {
    # A sanitizer takes memory of its own.
    FORGE=${FORGE_PLAIN:-$FORGE}
    start_server
    start
    timeout 120 python3 "$http_clients" followers "$url" "$token" "$id" 200 >"$T/readers" &
    readers=$!
    patiently grep -q 'all connected' "$T/readers"
    rss=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$server/status")
    echo "resident with 200 readers: $rss KiB"
    [ "$rss" -lt 40960 ]
    open_gate
    wait "$readers"
    cat "$T/readers"
    grep -q '^200 readers got 6 bytes and the end$' "$T/readers"
}

# ---- ends and faults

@test "ending or killing the server touches no run" {
    start_server
    start
    stop_server
    [ "$status" -eq 0 ]
    [ "$(of "$id" .status)" = running ]
    start_server
    post /api/v1/runs "{\"command\": [\"sh\", \"-c\", \"until [ -e $T/gate/open ]; do sleep 0.02; done\"], \"inputs\": [\"$T/gate\"]}"
    second=$(answer .run_id)
    stop_server KILL
    start_server
    get '/api/v1/runs?open=1'
    [ "$(answer '.runs | length')" = 2 ]
    open_gate
    finished "$id"
    finished "$second"
    [ "$(of "$second" .status)" = succeeded ]
}

@test "two servers cannot have one port" {
    start_server
    run "$FORGE" serve --listen "${url#http://}"
    [ "$status" -eq 1 ]
    [[ "$output" == *"Address already in use"*"chooses another port"* ]]
    run "$FORGE" serve --listen nowhere
    [ "$status" -eq 1 ]
    for wrong in 99999 65536 999999999999999999999 00; do
        run "$FORGE" serve --listen "127.0.0.1:$wrong"
        [ "$status" -eq 1 ]
        [[ "$output" == *"--listen: '127.0.0.1:$wrong': port "*" is not one of 1 to 65535"*"Port 0 is any free one"* ]] || { echo "$output"; return 1; }
    done
    run "$FORGE" serve --listen 127.0.0.1:http
    [[ "$output" == *"'127.0.0.1:http' is not host:port"* ]]
}

@test "a service manager passes the socket" {
    python3 "$http_clients" activate "$FORGE" serve --json >"$T/serve.out" 2>"$T/serve.err" 3>&- &
    server=$!
    started+=("$server")
    patiently grep -q '"url"' "$T/serve.out"
    url=$(jq -r .url "$T/serve.out") token=$(jq -r .token "$T/serve.out")
    get /api/v1/runs
    [ "$code" = 200 ]
}

@test "a store that is away is reported, and used when it is back" {
    [ "${FORGE_TEST_STORE:-sqlite}" = postgres ] || skip_unless "PostgreSQL only" false
    start_server
    get /api/v1/runs
    [ "$code" = 200 ]
    "$BATS_TEST_DIRNAME/../tools/with-postgres.sh" --kill
    away() { get /api/v1/runs && [ "$code" = 503 ]; }
    patiently away
    [ "$(answer .error.code)" = store_away ]
    [ "$(header Retry-After)" = 1 ]
    get /healthz
    [ "$code" = 200 ]
    "$BATS_TEST_DIRNAME/../tools/with-postgres.sh" --start
    back() { get /api/v1/runs && [ "$code" = 200 ]; }
    patiently back
}

@test "a store that is replaced by a backup is the store from then on" {
    [ "${FORGE_TEST_STORE:-sqlite}" = sqlite ] || skip_unless "SQLite only" false
    "$FORGE" run -q --id early -- true
    /usr/bin/python3 -c 'import sqlite3, sys; a, b = map(sqlite3.connect, sys.argv[1:]); a.backup(b); b.close()' "$FORGE_HOME/forge.db" "$T/backup.db"
    "$FORGE" run -q --id late -- true
    start_server
    get /api/v1/runs
    [ "$(answer '[.runs[].analysis_id] | sort | join(" ")')" = "early late" ]
    rm "$FORGE_HOME"/forge.db-*
    mv "$T/backup.db" "$FORGE_HOME/forge.db"
    only_early() { get "/api/v1/runs?limit=9" && [ "$(answer '[.runs[].analysis_id] | join(" ")')" = early ]; }
    patiently only_early
    # What is stored from now on is seen, too.
    "$FORGE" run -q --id later -- true
    both() { get "/api/v1/runs?limit=8" && [ "$(answer '[.runs[].analysis_id] | join(" ")')" = "later early" ]; }
    patiently both
}

@test "a run whose directory is gone is an answer, too" {
    start_server
    "$FORGE" run -q -- echo x
    id=$("$FORGE" ps -q)
    rm -rf "${FORGE_HOME:?}/runs/$id"
    get "/api/v1/runs/$id"
    [ "$code" = 200 ]
    get "/api/v1/runs/$id/logs/stdout"
    [ "$code" = 404 ]
    get "/api/v1/runs/$id/follow"
    [ "$code" = 404 ]
}

@test "a run whose supervisor was killed is repaired while only the server looks" {
    start_server
    start
    kill -9 "$(of "$id" .supervisor.pid)"
    # The server repairs every quarter of a minute; a reader of the log sees it.
    get "/api/v1/runs/$id/follow"
    [[ "$output" == *'"status":"lost"'* ]]
}
