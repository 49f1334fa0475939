#!/usr/bin/env bats
# What somebody forgets the first time, and what forge then says. It says facts, and guesses nothing.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() { setup_newcomer; }
teardown() { teardown_forge; }

@test "a file that was not given is named, with what to add" {
    mkdir data
    echo 1 >data/x.csv
    run forge run cat data/x.csv
    [ "$status" -eq 1 ]
    says "data/x.csv exists here but was not given to the run: add -i data."
    run forge run -i data cat data/x.csv
    [ "$status" -eq 0 ]
    run forge run ls --color=never --hide=data/x.csv nothing
    says "add -i data."
}

@test "a run that succeeds, or was given everything, hears nothing of it" {
    echo 1 >x
    run forge run -i x sh -c 'exit 3' x
    says_not "exists here"
    run forge run echo x
    [ "$status" -eq 0 ]
    says_not "exists here"
    run forge run ls /usr/bin/env /nowhere
    says_not "exists here"
    run forge run ls nothing-here
    says_not "exists here"
}

@test "python3 plot.py: the script is not there, and both ways are told" {
    echo 'print(1)' >plot.py
    run forge run python3 plot.py
    [ "$status" -eq 2 ]
    says "plot.py exists here but was not given to the run: use \`forge run plot.py\`, or add -i plot.py"
    run forge run plot.py
    [ "$status" -eq 0 ]
    run forge run -i plot.py python3 plot.py
    [ "$status" -eq 0 ]
}

@test "-i ../data works as typed" {
    mkdir ../data sub
    echo up >../data/x
    run forge run -i ../data cat ../data/x
    [ "$status" -eq 0 ]
    says up
    run forge run -i ../data/x cat ../data/x
    [ "$status" -eq 0 ]
    cd sub
    run forge run -i ../../data cat ../../data/x
    [ "$status" -eq 0 ]
    run forge run cat ../../data/x
    says "add -i ../../data."
}

@test "a script that needs the network hears that there is none" {
    run forge run python3 -c 'import urllib.request as u; u.urlopen("http://example.org/")'
    [ "$status" -eq 1 ]
    says "and has none (--network none)"
    run forge run python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 5)'
    [ "$status" -eq 1 ]
    says "and has none (--network none)"
    run forge run python3 -c 'import socket; socket.create_connection(("2001:db8::1", 80), 5)'
    [ "$status" -eq 1 ]
    says "and has none (--network none)"
}

@test "no guess when nothing was tried, and none about loopback" {
    run forge run sh -c 'exit 1'
    says_not network
    run forge run python3 -c '
import socket
socket.getaddrinfo("localhost", 80)
s = socket.create_server(("127.0.0.1", 0))
socket.create_connection(s.getsockname()).close()
raise SystemExit(1)'
    [ "$status" -eq 1 ]
    says_not network
    # Who tried and succeeded all the same has no need of it.
    run forge run python3 -c '
import socket
try:
    socket.create_connection(("192.0.2.1", 80), 5)
except OSError:
    pass'
    [ "$status" -eq 0 ]
    says_not network
}

@test "a missing script is said to be missing" {
    run -127 forge run nosuch.py
    says "nosuch.py does not exist here."
    run -127 forge run ./nosuch
    says "./nosuch does not exist here."
    run forge submit nosuch.py
    [ "$status" -eq 125 ]
    says "nosuch.py does not exist here"
    [ -z "$(forge ps -qa --status queued)" ]
}

@test "a program of a runtime whose name ends like a script's is no missing script" {
    mkdir -p prefix/bin
    printf '#!/bin/sh\necho tool\n' >prefix/bin/tool.sh
    chmod 755 prefix/bin/tool.sh
    id=$(forge submit -r ./prefix tool.sh)
    forge wait -q "$id"
    [ "$(forge logs "$id")" = tool ]
}

@test "submit ends with 125 for what is over the cap" {
    echo 'host: {max: {memory: 1G}}' >forge.yaml
    run forge submit --memory 2G -- true
    [ "$status" -eq 125 ]
    says "1.00 GiB"
    echo 'host: {budget: {memory: 1G}}' >forge.yaml
    run forge submit --memory 2G -- true
    [ "$status" -eq 125 ]
    says "Ask for less"
}

@test "sizes and times as people write them" {
    for memory in 512mb 512MB 512M 512MiB; do
        [ "$(forge run --memory $memory --json -- true | jq .limits.memory_bytes)" -eq 536870912 ]
    done
    [ "$(forge run --memory 2gb --json -- true | jq .limits.memory_bytes)" -eq 2147483648 ]
    for time in 1:30:00 90min 1.5h 5400; do
        [ "$(forge run --timeout $time --json -- true | jq .limits.wall_seconds)" -eq 5400 ]
    done
    [ "$(forge run --timeout 1-00:00:00 --json -- true | jq .limits.wall_seconds)" -eq 86400 ]
    for time in 1:30 1:2:3:4 1: :30 x; do
        run forge run --timeout "$time" -- true
        [ "$status" -eq 125 ]
        says "is not a duration"
    done
}

@test "options of other programs get their name here" {
    for try in "--mem 2G:--memory" "-m 2G:--memory" "--time 1h:--timeout" "-v a:--input" "--volume a:--input" \
        "-e A=1:--env" "--name x:--id" "--cpus-per-task 2:--cpus"; do
        # shellcheck disable=SC2086 # two words
        run forge run ${try%:*} true
        [ "$status" -eq 2 ]
        says "here it is ${try##*:}"
    done
    run forge run --gpu true
    [ "$status" -eq 2 ]
    says "a run sees no GPU"
}

@test "the help of run begins with examples, and the options people need come first" {
    run forge run --help
    [ "${lines[1]}" = "Examples:" ]
    [ "$(grep -c '^  forge run' <<<"$output")" -eq 3 ]
    [ "$(grep -oE '^ +(-.,)? +--[a-z]+' <<<"$output" | grep -oE -e '--[a-z]+' | head -n 4 | xargs)" = "--runtime --input --output --copy" ]
    [ "$(grep -n -e '--input' <<<"$output" | head -1 | cut -d: -f1)" -lt "$(grep -n -e '--pids' <<<"$output" | cut -d: -f1)" ]
    run forge --help
    says "post-process  "
}
