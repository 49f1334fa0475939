#!/bin/sh
# systemd-test.sh: the manager "systemd", inside the guest of run-systemd.sh: asking the system
# manager as root and the user manager as a lingering user. TAP.
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$0")
. "$here/tap.sh"
. "$here/checks.sh"

cp "$here/forge" /usr/local/bin/forge
chmod 755 /usr/local/bin/forge
export FORGE=/usr/local/bin/forge PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# start COMMAND...: as $who; exec_in=exec makes a background process the command's own.
start() {
    if [ "$who" = user ]; then
        set -- setpriv --reuid 1000 --regid 1000 --init-groups env \
            XDG_RUNTIME_DIR=/run/user/1000 USER=tester "$@"
    fi
    ${exec_in:-} "$@"
}

ctl() {
    if [ "$who" = user ]; then
        start systemctl --user "$@"
    else
        systemctl "$@"
    fi
}

scopes_left() {
    ctl list-units --all --plain --no-legend 'forge-*.scope'
    find /sys/fs/cgroup -type d -name 'forge-*'
}

# The manager takes a scope away when it hears that it is empty.
no_scope_left() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -n "$(scopes_left)" ] || return 0
        sleep 0.2
    done
    scopes_left
    return 1
}

# The system manager gives io away, a user's manager has none to give.
limits_io() {
    record start -- --io-rate 4M -- dd if=/dev/zero of=file bs=1M count=8 oflag=direct
    if [ "$who" = user ]; then
        verdict_is "an I/O rate is refused" "125 rejected sandbox"
        ok "$who: ... by name" grep -q 'the io controller, .* is not delegated to' "$home/record"
        return
    fi
    verdict_is "a run with an I/O rate succeeds" "0 succeeded exit"
    is "$who: ... in its time" "$(field '.usage.wall_seconds | . > 1.5 and . < 20')" true ||
        note "$(field .usage.wall_seconds)"
}

# A delegated scope that also has the shell: any number of commands, and nobody is asked for more.
from_a_shell() {
    unit=shell-$who.scope
    user=
    [ "$who" = root ] || user=--user
    cat >"$home/shell" <<'SHELL'
sleep 300 &
other=$!
for _ in 1 2 3 4 5; do
    "$FORGE" run --json true 2>"$HOME/shell-said" >"$HOME/shell-record" || cat "$HOME/shell-said"
    jq -r .isolation.mechanisms.cgroup "$HOME/shell-record"
    "$FORGE" run --memory 64M -- sh -c 'exit 7' 2>/dev/null &
done
kill $other
wait
SHELL
    # shellcheck disable=SC2086 # words
    start systemd-run $user --quiet --scope --unit "$unit" -p Delegate=yes sh "$home/shell" >"$home/shell-out" 2>&1
    # A user's manager marks what it delegates since systemd 254 only; without the mark it is asked.
    wanted="v2 v2 v2 v2 v2"
    [ "$who" = root ] || grep -q v2 "$home/shell-out" || wanted="systemd systemd systemd systemd systemd"
    is "$who: from a shell in a delegated scope all runs are made in it" "$(xargs <"$home/shell-out")" "$wanted"
}

for who in root user; do
    home=/var/tmp/$who
    mkdir -p "$home/state"
    printf 'sandbox:\n  cgroup: systemd\n  allow_missing: [landlock]\n' \
        >"$home/forge.yaml"
    [ "$who" = root ] || chown -R 1000:1000 "$home"
    cd "$home" || exit 1
    export HOME="$home" FORGE_HOME="$home/state"
    [ "$who" = root ] || for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ -S /run/user/1000/bus ] && break
        sleep 1
    done

    succeeds start systemd
    limits_memory start
    limits_memory_of_all start
    limits_pids start
    limits_cpus start
    limits_wall_time start
    limits_io
    start_in_background start
    # The scope is around the supervisor: what it may use is its run's group below.
    is "$who: the scope is delegated" \
        "$(ctl show -p Delegate --value "$(scopes_left | awk 'NR == 1 { print $1 }')")" yes
    is "$who: ... and survives running out of memory" \
        "$(ctl show -p OOMPolicy --value "$(scopes_left | awk 'NR == 1 { print $1 }')")" continue
    # shellcheck disable=SC2154 # start_in_background set it
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    start "$FORGE" gc >"$home/gc" 2>&1
    ok "$who: after SIGKILL of the supervisor no scope is left" no_scope_left
    cancels start
    ok "$who: no scope is left" no_scope_left

    # auto takes what is delegated already, or asks the manager; it never runs unlimited.
    printf 'sandbox:\n  allow_missing: [landlock]\n' >"$home/forge.yaml"
    record start -- true
    verdict_is "without a word about cgroups a run succeeds" "0 succeeded exit"
    is "$who: auto asks systemd where nothing is delegated" "$(field .isolation.mechanisms.cgroup)" systemd
    is "$who: ... and makes no group beside its units" "$(find /sys/fs/cgroup -type d -name forge)" ""
    ok "$who: no scope is left of that" no_scope_left
    from_a_shell
done

# ---- health: units of a real manager, and a kernel that does not tell the pressure on memory

# verdict_of NAME: of that check, and what it says.
verdict_of() { jq -r --arg name "$1" '.[] | select(.name == $name) | "\(.ok) \(.text)"' /tmp/health; }
check_units() { HOME=/var/tmp/health FORGE_HOME=/var/tmp/health/state "$FORGE" health check --json >/tmp/health 2>/tmp/said; }
# has_failed UNIT: returns when it has; no later than after 20 s.
has_failed() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ "$(systemctl is-active "$1")" != failed ] || return 0
        sleep 1
    done
    return 1
}
mkdir -p /var/tmp/health/state
cd /var/tmp/health || exit 1
{
    printf 'sandbox:\n  allow_missing: [landlock]\nhealth:\n'
    for unit in up down none; do
        echo "  $unit: {kind: systemd, unit: health-$unit.service}"
    done
    echo '  target: {kind: systemd, unit: sysinit.target}'
    echo '  pressure: {kind: memory, max_pressure: 50%}'
} >forge.yaml
systemd-run --quiet --unit health-up.service sleep 1000
systemd-run --quiet --unit health-down.service false
has_failed health-down.service
check_units
is "health: a unit that runs passes" "$(verdict_of up)" "true health-up.service is active (running)"
is "health: one that failed does not" "$(verdict_of down)" "false health-down.service is failed (failed)"
is "health: nor does one that is not there" "$(verdict_of none)" "false health-none.service: systemd has no such unit"
is "health: any kind of unit can be checked" "$(verdict_of target)" "true sysinit.target is active (active)"
[ -e /proc/pressure/memory ] ||
    is "health: a kernel without PSI is named" "$(verdict_of pressure)" "false this kernel does not tell the pressure on memory"
systemctl kill --signal KILL health-up.service
has_failed health-up.service
check_units
is "health: a unit that is killed is noticed" "$(verdict_of up)" "false health-up.service is failed (failed)"
printf 'sandbox:\n  allow_missing: [landlock]\nhealth:\n  up: {kind: systemd, unit: health-up.service}\n' >forge.yaml
who=root home=/var/tmp/health HOME=/var/tmp/health FORGE_HOME=/var/tmp/health/state
record start -- true
verdict_is "a run waits for no dead unit" "125 rejected health_pre"
systemctl reset-failed
systemd-run --quiet --unit health-up.service sleep 1000
record start -- true
verdict_is "... and starts when it lives" "0 succeeded exit"
systemctl stop health-up.service

# ---- forge setup: the user managers' controllers, and a user who lingers

as_root() { (unset FORGE_HOME && HOME=/root "$FORGE" setup "$@" --json >/tmp/report 2>/tmp/said); }
useradd -m second
cd /
echo 0 >/proc/sys/user/max_net_namespaces
as_root --user tester --user second
is "setup succeeds" $? 0 || note "$(cat /tmp/said /tmp/report)"
is "setup sets the sysctl" "$(cat /proc/sys/user/max_net_namespaces)" 15000
is "setup gives the user managers io as well" \
    "$(systemctl show -p DelegateControllers --value user@1000.service)" "cpu io memory pids"
second=$(id -u second)
is "setup starts the manager of a user who had none" "$(systemctl is-active "user@$second.service")" active
mkdir -p /var/tmp/second/state
printf 'sandbox:\n  allow_missing: [landlock]\n' >/var/tmp/second/forge.yaml
chown -R "$second" /var/tmp/second
cd /var/tmp/second || exit 1
setpriv --reuid "$second" --regid "$second" --init-groups env HOME=/var/tmp/second FORGE_HOME=/var/tmp/second/state \
    XDG_RUNTIME_DIR="/run/user/$second" USER=second "$FORGE" run --io-rate 64M true >/tmp/out 2>&1
is "... who can now run analyses, with an I/O rate" $? 0 || note "$(cat /tmp/out)"
cd /
as_root --user tester
is "the second time it is done" "$(jq -r '[.actions[] | select(.state != "not needed") | .state] | unique | join(" ")' /tmp/report)" "done"
as_root --undo
is "--undo succeeds" $? 0 || note "$(cat /tmp/said /tmp/report)"
is "--undo sets the sysctl back" "$(cat /proc/sys/user/max_net_namespaces)" 0
is "--undo gives back what was" "$(systemctl show -p DelegateControllers --value user@1000.service)" "cpu memory pids"
is "--undo leaves who lingered before, and only that" "$(ls /var/lib/systemd/linger)" tester
is "--undo leaves no file" "$(find /etc/forge /etc/sysctl.d/60-forge.conf /etc/systemd/system/user@.service.d 2>/dev/null)" ""
done_testing
