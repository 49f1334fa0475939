#!/bin/sh
# setup-test.sh FORGE PROBE: forge setup on a live host without systemd, inside the guest of run-uml.sh: before it
# an ordinary user is refused, after it the same shell runs analyses; --undo takes all of it back. TAP.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../tools/tap.sh"

cg=/sys/fs/cgroup
cp "$1" /tmp/forge
cp "$2" /tmp/forge-probe
chmod 755 /tmp/forge /tmp/forge-probe
export FORGE=/tmp/forge HOME=/tmp
# The root is read-only and the host's: what setup writes to is a copy.
for dir in /etc /usr/share/pam-configs /var/lib/pam; do
    mkdir -p "/tmp/copy$dir"
    cp -a "$dir/." "/tmp/copy$dir/" 2>/dev/null
    mount --bind "/tmp/copy$dir" "$dir" || note "cannot copy $dir"
done
# hostfs shows every file as the host's user has it; PAM's configuration must be root's.
chown -R 0:0 /etc
rm -rf /etc/forge /etc/sysctl.d/60-forge.conf
grep -q '^tester:' /etc/passwd || echo 'tester:x:4242:4242::/tmp/tester:/bin/sh' >>/etc/passwd
grep -q '^tester:' /etc/group || echo 'tester:x:4242:' >>/etc/group
grep -q '^tester:' /etc/shadow || echo 'tester:*:19000:0:99999:7:::' >>/etc/shadow
mkdir -p /tmp/tester/state
printf 'sandbox:\n  allow_missing: [landlock]\n' >/tmp/tester/forge.yaml
cp /tmp/tester/forge.yaml /tmp/forge.yaml
chown -R 4242:4242 /tmp/tester

# A shell of the user's that was there before: runs what is written to it, and answers with the status.
mkfifo /tmp/ask /tmp/answer
chmod 666 /tmp/ask /tmp/answer
cat >/tmp/shell <<'SHELL'
cd /tmp/tester
export HOME=/tmp/tester FORGE_HOME=/tmp/tester/state
while read -r line </tmp/ask; do
    sh -c "$line" >/tmp/tester/out 2>&1
    echo $? >/tmp/answer
done
SHELL
setpriv --reuid 4242 --regid 4242 --clear-groups sh /tmp/shell &
shell=$!
ask() {
    echo "$1" >/tmp/ask
    read -r answer </tmp/answer
    echo "$answer"
}

# ---- before

echo 0 >/proc/sys/user/max_user_namespaces
export FORGE_HOME=/tmp/root-state FORGE_CONFIG=/tmp/forge.yaml
mkdir -p $FORGE_HOME
$FORGE run true >/tmp/out 2>&1
is "before: root is refused for the sysctl" $? 125
ok "before: ... and the fix named" grep -q 'forge setup' /tmp/out || note "$(cat /tmp/out)"
is "before: so is the user" "$(ask "$FORGE run true")" 125
ok "before: ... with the fix as well" grep -q 'forge setup' /tmp/tester/out || note "$(cat /tmp/tester/out)"
ask "$FORGE doctor" >/dev/null
ok "before: doctor names setup for the sysctl" grep -q 'max_user_namespaces.*forge setup' /tmp/tester/out ||
    note "$(cat /tmp/tester/out)"
echo 1000 >/proc/sys/user/max_user_namespaces
is "before: doctor finds limits missing for the user" "$(ask "$FORGE doctor")" 1
ok "before: ... and names setup" grep -q '^  [0-9]*\. memory.*forge setup --user' /tmp/tester/out ||
    note "$(cat /tmp/tester/out)"
echo 0 >/proc/sys/user/max_user_namespaces
$FORGE setup --user tester --dry-run >/tmp/out 2>&1
is "--dry-run succeeds" $? 0
is "--dry-run writes nothing" "$(find /etc/forge /etc/sysctl.d/60-forge.conf /etc/init.d/forge-cgroups 2>/dev/null)" ""
is "--dry-run changes nothing" "$(cat /proc/sys/user/max_user_namespaces)" 0

# ---- after

$FORGE setup --user tester --json >/tmp/report 2>/tmp/said
is "setup succeeds" $? 0 || note "$(cat /tmp/said)"
is "the sysctl is set now" "$(cat /proc/sys/user/max_user_namespaces)" 15000
$FORGE run true 2>/tmp/said
is "after: root's run succeeds" $? 0 || note "$(cat /tmp/said)"
is "after: the user's, from the shell that was there" "$(ask "$FORGE run --json true >record")" 0 ||
    note "$(cat /tmp/tester/out)"
is "after: ... with every limit" "$(jq -r '.isolation.missing | join(" ")' /tmp/tester/record)" landlock
is "after: ... ten at once" "$(ask "for i in 1 2 3 4 5 6 7 8 9 10; do $FORGE run -- true & pids=\"\$pids \$!\"; done
    for p in \$pids; do wait \$p || exit 1; done" | tail -n 1)" 0 || note "$(cat /tmp/tester/out)"
is "after: ... its memory is limited" "$(ask "$FORGE run --memory 48M -- tail /dev/zero")" 137
ask "$FORGE doctor" >/dev/null
is "after: doctor finds every limit" "$(grep -c 'forge setup' /tmp/tester/out)" 0 || note "$(cat /tmp/tester/out)"
is "after: the group is the user's own" "$(stat -c %u $cg/forge-user-tester)" 4242
$FORGE setup --user tester --json >/tmp/report 2>/tmp/said
is "the second time it is done" "$(jq -r '[.actions[] | select(.state != "not needed") | .state] | unique | join(" ")' /tmp/report)" "done"

# A new session is moved by PAM, where that is installed.
if grep -qs forge-cgroups /etc/pam.d/common-session; then
    is "a session of the user's is in the group" \
        "$(su tester -c 'cat /proc/self/cgroup' 2>/tmp/said | grep -c '^0::/forge-user-tester/')" 1 || note "$(cat /tmp/said)"
    is "... and nobody else's" "$(su nobody -s /bin/sh -c 'cat /proc/self/cgroup' | grep -c forge-user)" 0
else
    skip "a session of the user's is in the group" "PAM's common-session could not be changed here"
    skip "... and nobody else's" "PAM's common-session could not be changed here"
fi
# At the next boot the group is made anew.
mkdir -p $cg/elsewhere
cat $cg/forge-user-tester/cgroup.procs $cg/forge-user-tester/forge-supervisors/cgroup.procs >/tmp/pids
while read -r pid; do
    echo "$pid" >$cg/elsewhere/cgroup.procs
done </tmp/pids
rmdir $cg/forge-user-tester/forge-supervisors $cg/forge-user-tester
/etc/init.d/forge-cgroups start
is "the script makes the group at boot" "$(stat -c %u $cg/forge-user-tester/cgroup.procs)" 4242
/etc/init.d/forge-cgroups enter tester $shell
is "... and moves a session there" "$(ask "$FORGE run true")" 0 || note "$(cat /tmp/tester/out)"

# A group with a process in it would stay.
echo $shell >$cg/elsewhere/cgroup.procs

# ---- a place for workdirs

make_place() {
    $FORGE setup --workdir-quota 400M --workdir-dir /tmp/place/work --json >/tmp/report 2>/tmp/said
    echo "$? $(jq -r '.actions[] | select(.name == "workdir-quota") | .state' /tmp/report)"
}
if [ ! -e /dev/loop-control ]; then
    is "without loop devices no place is made" "$(make_place)" "1 cannot"
    ok "... and that is said" grep -q 'no loop devices' /tmp/report
fi
module=$(find /usr/lib/uml/modules -name loop.ko 2>/dev/null | head -n 1)
if [ -e /dev/loop-control ] || { [ -n "$module" ] && busybox insmod "$module"; }; then
    is "a place with quotas is made" "$(make_place)" "0 made" || note "$(cat /tmp/said /tmp/report)"
    ok "... which the configuration names" grep -q '/tmp/place/work/{id}' /etc/forge/forge.yaml
    # The guest has no Landlock, which the user's own configuration must allow.
    (cat /etc/forge/forge.yaml /tmp/forge.yaml) >/tmp/both.yaml
    FORGE_CONFIG=/tmp/both.yaml $FORGE run --json --disk 16M -- sh -c 'head -c 64M /dev/zero >file' \
        >/tmp/record 2>/tmp/said
    is "... the kernel limits a run's disk there" \
        "$(jq -r '.isolation.mechanisms.disk + ", " + .reason' /tmp/record)" "project quota, disk" || note "$(cat /tmp/said)"
    is "... the second time it is done" "$(make_place)" "0 done"
    mkdir /tmp/place/work/kept
    is "... --undo leaves it while somebody's workdir is in it" "$($FORGE setup --undo --json 2>/dev/null |
        jq -r '.actions[] | select(.name == "workdir-quota") | .state')" left
    ok "... mounted" mountpoint -q /tmp/place/work
    rmdir /tmp/place/work/kept
    /etc/init.d/forge-workdirs start
    is "... the script that mounts it at boot is there" $? 0
else
    skip "a place with quotas is made" "no loop devices in this kernel"
fi

# ---- back

$FORGE setup --undo --json >/tmp/report 2>/tmp/said
is "--undo succeeds" $? 0 || note "$(cat /tmp/said /tmp/report)"
is "--undo sets the sysctl back" "$(cat /proc/sys/user/max_user_namespaces)" 0
is "--undo removes what was written" \
    "$(find /etc/sysctl.d/60-forge.conf /etc/init.d/forge-* /usr/share/pam-configs/forge /tmp/place/work* 2>/dev/null)" "" ||
    note "$(cat /tmp/report)"
is "--undo removes the user's group" "$(find $cg -name 'forge-user-*')" ""
is "--undo takes PAM's line back" "$(grep -s forge-cgroups /etc/pam.d/*)" ""
kill $shell
done_testing
