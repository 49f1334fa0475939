#!/usr/bin/env bats
# Who a run is and what it may become.
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() { setup_forge; }
teardown() { teardown_forge; }

@test "the run is uid 1000 'forge' on host 'forge', and nobody's root" {
    holds identity
    if [ "$mode" = nested ]; then
        holds host-uid 1
    else
        holds host-uid
    fi
    breaks identity
    breaks host-uid
}

@test "files of root's runs belong to nobody of the host while they run" {
    skip_unless "only root can do this" is_root
    background "$FORGE" run -q --id "own-$$" -- sh -c 'echo x >mine; sleep 20'
    wait_for test -s "$work/scidex-analysis-own-$$/work/mine"
    uid=$(stat -c %u "$work/scidex-analysis-own-$$/work/mine")
    [ "$uid" -gt 65535 ]
    run getent passwd "$uid"
    [ "$status" -eq 2 ]
    kill "$pid" && wait "$pid" || true
}

@test "two runs of root at once have two user ids" {
    skip_unless "only root can do this" is_root
    background "$FORGE" run -q --id "two-$$" -- sh -c 'echo x >mine; sleep 20'
    wait_for test -s "$work/scidex-analysis-two-$$/work/mine"
    forge_run -- cat /proc/self/uid_map
    [ "$(awk '{ print $2 }' "$out")" != "$(stat -c %u "$work/scidex-analysis-two-$$/work/mine")" ]
    kill "$pid" && wait "$pid" || true
}

@test "[18] no kind of namespace can be made by unshare" {
    holds unshare
    breaks unshare
}

@test "[18] no kind of namespace can be made by clone, nor with garbage in the high half" {
    holds clone
    breaks clone
}

@test "[18] clone3 does not exist" {
    holds clone3
    [[ "$answer" != *EPERM* ]]
    breaks clone3
}

@test "[18] no namespace can be entered" {
    holds setns
    skip_unless "only root can do this" is_root
    breaks setns
}

@test "[19] every system call of the list is refused before the kernel looks at it" {
    holds syscalls
    breaks syscalls
}

@test "[19] system calls younger than forge do not exist" {
    holds unknown-calls
}

@test "[20] calls of the i386 and x32 ABIs kill the caller" {
    holds i386
    holds x32
}

@test "[20] the attack itself works: outside i386 calls reach the kernel" {
    skip_unless "this kernel has no i386 calls" sh -c '"$1" i386 | grep broke' sh "$PROBE"
    breaks i386
}

@test "[21] nothing can be typed into the caller's terminal, nor with garbage in the high half" {
    holds tty
    breaks tty
}

@test "[21] the caller's terminal does not reach the run" {
    skip_unless "no script(1) to make a terminal with" command -v script
    run script -qec "'$FORGE' run --stdin '$PROBE' tty" /dev/null
    [[ "$output" == *"held: "* ]]
    run script -qec "'$FORGE' run '$PROBE' tty" /dev/null
    [[ "$output" == *"held: "* ]]
    run script -qec "'$PROBE' tty" /dev/null
    [[ "$output" == *"broke: "* ]]
}

@test "[22] no process of the host, nor init, can be signalled" {
    background sleep 30
    holds kill-pids "$pid" $$ "$PPID"
    holds kill-all
    [[ "$answer" == *"kill(1) EPERM"* ]] # by Landlock: the uid is the same
    kill -0 "$pid"
    breaks kill-pids "$pid"
}

@test "[22] init cannot be debugged or read" {
    holds trace
    holds proc1
    holds processes 2
    background sleep 30
    run "$PROBE" trace "$pid"
    [[ "$output" == *"broke: "*attach* ]]
    kill -KILL "$pid"
}

@test "init does not show forge's command line" {
    OPTS=(--id "secret-id-$$" --config "$FORGE_CONFIG")
    holds cmdline "secret-id-$$" "$FORGE_CONFIG" --json
}

@test "[23] no groups, no capabilities, locked securebits, no new privileges, a filter" {
    holds groups
    holds caps
    holds flags
    breaks flags
    if [ "$mode" != user ]; then
        breaks caps
    fi
}

@test "[23] init has no capability either" {
    forge_run -- sh -c 'grep -E "^Cap(Inh|Prm|Eff|Bnd|Amb):" /proc/1/status'
    [ "$(wc -l <"$out")" -eq 5 ]
    run grep -v '\s0000000000000000$' "$out"
    [ "$status" -eq 1 ]
}

@test "[23] nothing of that can be won back" {
    holds gain
    if is_root; then
        breaks gain
    fi
}

@test "[23] the caller's groups do not go inside" {
    skip_unless "only root can do this" is_root
    run setpriv --groups 4,27 "$FORGE" run -q "$PROBE" groups
    [ "$status" -eq 0 ]
    run setpriv --groups 4,27 "$PROBE" groups
    [[ "$output" == "broke: "* ]]
}

@test "signals are as new, whatever forge's caller did to them" {
    holds signals
    trap '' INT TERM USR1 CHLD
    holds signals
    trap - INT TERM USR1 CHLD
    run sh -c 'trap "" INT; "$1" signals' sh "$PROBE"
    [[ "$output" == "broke: "* ]]
}

@test "[24] a daemon in its own session that ignores all signals dies with the run" {
    for _ in 1 2 3; do
        probe daemon "forge-t-$$" 60
        [ "$status" -eq 0 ]
        no_process_named "forge-t-$$"
    done
}

@test "[24] the attack itself works: outside the daemon survives" {
    run "$PROBE" daemon "forge-o-$$" 5
    [ -n "$(named "forge-o-$$")" ]
    wait_for no_process_named "forge-o-$$" || wait_for no_process_named "forge-o-$$"
}

@test "[25] variables of the caller stay outside" {
    export LD_PRELOAD='' LD_LIBRARY_PATH=/x GCONV_PATH=/x PGPASSWORD=x MY_SECRET=x DISPLAY=:0
    holds env MY_SECRET FORGE_HOME FORGE_CONFIG BATS_TMPDIR
    breaks env MY_SECRET
}

@test "[25] --env passes one variable, and only that" {
    export MY_SECRET=value-1 OTHER_SECRET=x
    OPTS=(--env MY_SECRET --env NEW=value-2)
    forge_run -- sh -c 'echo $MY_SECRET $NEW $OTHER_SECRET'
    [ "$(cat "$out")" = "value-1 value-2" ]
}

@test "[25] --env-file passes what is in it" {
    printf '# comment\nA=1\n\nB=two words\nPASSED\n' >vars
    export PASSED=yes
    OPTS=(--env-file vars)
    forge_run -- sh -c 'echo "$A $B $PASSED"'
    [ "$(cat "$out")" = "1 two words yes" ]
}

@test "HOME, PWD, TMPDIR and USER are the run's own" {
    forge_run -- sh -c 'echo $HOME $PWD $TMPDIR $USER $(id -un) $(hostname)'
    workdir=$(field .workdir)
    [ "$(cat "$out")" = "$workdir $workdir /tmp forge forge forge" ]
}
