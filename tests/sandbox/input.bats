#!/usr/bin/env bats
# Bad input: a clear message, exit 125 (wrong use: 2), nothing made and nothing left.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() {
    setup_forge
    rm -rf "$FORGE_HOME"
}
teardown() { teardown_forge; }

# refused TEXT OPTION... -- COMMAND...: 125, TEXT in the message, and nothing made.
refused() {
    local text=$1
    shift
    # A place of our own, so that others' workdirs do not count.
    mkdir -p -m 700 "$T/none"
    grep -q '^workdir:' "$FORGE_CONFIG" || echo "workdir: $T/none/{id}" >>"$FORGE_CONFIG"
    run "$FORGE" run "$@" </dev/null
    echo "$output"
    [ "$status" -eq 125 ] || return 1
    [[ "$output" == *"$text"* ]] || return 1
    [ -z "$(ls "$T/none")" ] || return 1
    [ -z "$(ls "$FORGE_HOME/runs" 2>/dev/null)" ] || return 1
    [ -z "$(find "$FORGE_HOME/active" -type f -size +0 2>/dev/null)" ] || return 1
}

@test "sizes: 0, negative, garbage and overflow" {
    for value in 0 -1 2X '' 1.5.5G 99999999999999999999 18446744073709551616 16E ' 1G' 1G2 0x10 NaN; do
        refused --memory --memory "$value" -- true
        refused --disk --disk "$value" -- true
        refused --output-limit --output-limit "$value" -- true
    done
}

@test "durations, counts and CPUs: 0, negative, garbage and overflow" {
    for value in 0 -1s 1x '' 99999999999999999999h 1h30; do
        refused --timeout --timeout "$value" -- true
        refused --cpu-time --cpu-time "$value" -- true
    done
    for value in 0 -1 1.5 '' ten 99999999999999999999; do
        refused --pids --pids "$value" -- true
        refused --open-files --open-files "$value" -- true
    done
    for value in 0 -1 '' two 1e9; do
        refused --cpus --cpus "$value" -- true
    done
}

@test "unlimited must be allowed by the host" {
    refused host.allow_unlimited --memory unlimited -- true
    configure 'host:' '  allow_unlimited: true'
    run "$FORGE" run -q --disk unlimited -- true
    [ "$status" -eq 0 ]
}

@test "what is above the host's caps is refused with both numbers" {
    configure 'host:' '  max:' '    memory: 1G'
    refused "1.00 GiB" --memory 2G -- true
}

@test "ids that would lead elsewhere" {
    for value in ../x .. . '' a/b 'a b' "$(head -c 65 /dev/zero | tr '\0' a)" $'a\nb' -x; do
        refused --id "--id=$value" -- true
    done
}

@test "names of variables" {
    for value in 1A=2 =x 'A B=1' A-B=1 ''; do
        refused --env --env "$value" -- true
    done
    refused FORGE_ --env FORGE_RUN_ID=x -- true
    printf 'OK=1\n1BAD=2\n' >vars
    refused "vars:2" --env-file vars -- true
    refused "none" --env-file "$T/none" -- true
}

@test "inputs that are not there, or neither file nor directory" {
    mkfifo pipe
    ln -s nowhere dangling
    ln -s loop loop
    refused missing -i missing -- true
    refused pipe -i pipe -- true
    refused dangling -i dangling -- true
    refused loop -i loop -- true
    refused /dev/null -i /dev/null -- true
    refused "empty" -i '' -- true
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
    refused sock -i sock -- true
}

@test "inputs that would undo the sandbox" {
    refused "/" -i / -- true
    refused /proc -i /proc -- true
    refused /proc -i /proc/self -- true
    refused /sys -i /sys/kernel -- true
    refused /dev -i /dev -- true
    refused /tmp -i /tmp -- true
    mkdir -p "$FORGE_HOME"
    refused records -i "$FORGE_HOME" -- true
    refused "$T" -i "$T" -- true
}

@test "inputs that the run's user could not read are named before it starts" {
    skip_unless "only root can do this" is_root
    echo x >private
    chmod 600 private
    refused private -i private -- true
}

@test "an unknown network, profile or option" {
    refused --network --network lan -- true
    refused --profile --profile nope -- true
    run "$FORGE" run --no-such-option true
    [ "$status" -eq 2 ]
    run "$FORGE" run
    [ "$status" -eq 2 ]
    refused empty -- ''
}

@test "a configuration with an error is refused with its place" {
    configure 'sandbox:' '  nope: 1'
    refused "forge.yaml:3:3" -- true
    refused "does not exist" --config "$T/none.yaml" -- true
    mkfifo pipe.yaml
    refused "not a regular file" --config pipe.yaml -- true
}

@test "a configuration that others can write is refused for root" {
    skip_unless "only root can do this" is_root
    chmod 666 "$FORGE_CONFIG"
    refused "mode 0666" -- true
    chmod 644 "$FORGE_CONFIG"
    chown 12345 "$FORGE_CONFIG"
    refused "belongs to user 12345" -- true
}

@test "[7] a run does not start when /dev/null is not the null device" {
    skip_unless "an ordinary user cannot mount" unshare --mount true
    echo marker >"$T/fake"
    run unshare --mount sh -c 'mount --bind "$1" /dev/null && exec "$FORGE" run true' sh "$T/fake"
    [ "$status" -eq 125 ]
    [[ "$output" == */dev/null* ]]
    [ "$(cat "$T/fake")" = marker ]
}

@test "a state directory that others can write is refused" {
    mkdir -m 777 -p "$FORGE_HOME"
    chmod 777 "$FORGE_HOME"
    mkdir -m 777 "$FORGE_HOME/runs"
    chmod 777 "$FORGE_HOME/runs"
    run "$FORGE" run true
    [ "$status" -eq 125 ]
    [[ "$output" == *"not yours alone"* ]]
}

@test "a workdir in a directory where others could swap it is refused" {
    mkdir -m 777 open
    chmod 777 open
    configure "workdir: $T/open/{run_id}"
    refused "could replace" -- true
    [ -z "$(ls open)" ]
    chmod +t open
    run "$FORGE" run -q true
    [ "$status" -eq 0 ]
}

@test "a workdir whose parent is a link is refused" {
    mkdir real
    ln -s real link
    configure "workdir: $T/link/{run_id}"
    run "$FORGE" run -q true
    [ "$status" -eq 125 ]
    [ -z "$(ls real)" ]
}

@test "--input-below: an input that is not below the directory is refused, by whatever way" {
    local text="is not below a directory that --input-below names"
    mkdir in out
    echo 1 >in/a
    echo 2 >out/b
    ln -s "$T/out/b" in/link
    ln -s "$T/in" way
    echo 'echo 1' >out/script.sh
    for input in out/b in/link in/../out/b /etc/passwd; do
        refused "$text" --input-below in -i "$input" -- true
    done
    # A script is an input as well.
    refused "$text" --input-below in -- out/script.sh
    refused "$text" --input-below none -i in/a -- true
    for input in in/a way/a in/link out; do
        forge_run --input-below in --input-below out -i "$input" -- true
        [ "$status" -eq 0 ]
    done
    # A rerun keeps to it.
    forge_run --input-below in -i in/a -- true
    [ "$(field '.asked.input_below[0]')" = in ]
    rm in/a
    ln -s "$T/out/b" in/a
    run "$FORGE" rerun -q "$(field .run_id)"
    [ "$status" -eq 125 ]
    [[ "$output" == *"$text"* ]]
}
