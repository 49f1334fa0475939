#!/usr/bin/env bats
# A run has no network but its own loopback, unless it asks for the host's.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() { setup_forge; }
teardown() { teardown_forge; }

@test "[26] sockets of families that go around the network cannot be made" {
    holds families
}

@test "[26] the attack itself works: outside some can be made" {
    skip_unless "only root can do this" is_root
    breaks families
}

@test "[26] nothing can be sent to any address" {
    holds outside
    [[ "$answer" != *ETIMEDOUT* ]] # it was not on its way
}

@test "[26] the only interface is lo, and it cannot be changed" {
    holds interfaces
}

@test "[27] a service on the host's loopback cannot be reached" {
    listen
    holds connect "$port"
    [ ! -s "$heard" ]
    breaks connect "$port" 127.0.0.1
    wait_for test -s "$heard"
}

@test "[27] an abstract socket of the host cannot be reached" {
    listen
    holds abstract "$abstract"
    [ ! -s "$heard" ]
    breaks abstract "$abstract"
    wait_for test -s "$heard"
}

@test "[27] with the host's network its abstract sockets are still out of reach (Landlock)" {
    listen
    OPTS=(--network host)
    holds abstract "$abstract"
    [[ "$answer" == *EPERM* ]]
    [ ! -s "$heard" ]
}

@test "[28] one's own loopback works" {
    holds loopback
}

@test "[28] two runs cannot meet on it" {
    background "$FORGE" run -q --id "net-$$" -- python3 -c '
import socket, time
s = socket.create_server(("127.0.0.1", 47811)); open("ready", "w").close(); time.sleep(20)'
    wait_for test -e "$work/scidex-analysis-net-$$/work/ready"
    holds connect 47811
    kill "$pid" && wait "$pid" || true
}

@test "--network host reaches the host's loopback, and the record says so" {
    listen
    OPTS=(--network host)
    probe connect "$port" 127.0.0.1
    [[ "$answer" == "broke: "* ]]
    wait_for test -s "$heard"
    [ "$(field .network)" = host ]
}

@test "with --network host the dangerous families are still refused" {
    OPTS=(--network host)
    holds families
}
