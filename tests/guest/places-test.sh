#!/bin/sh
# places-test.sh FORGE: where the runs' groups go on a unified hierarchy without systemd, inside the guest of
# run-uml.sh: a shell in the real root, in a group with others, in a container's, in a user's. Every case
# starts forge from a shell that stays where it is, as a person does. TAP.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../tools/tap.sh"

cg=/sys/fs/cgroup
# hostfs knows only the host's users: everything forge touches is on a tmpfs.
cp "$1" /tmp/forge
chmod 755 /tmp/forge
printf 'sandbox:\n  allow_missing: [landlock]\n' >/tmp/forge.yaml
export FORGE=/tmp/forge FORGE_CONFIG=/tmp/forge.yaml HOME=/tmp

# The part of each case that runs in the place: in a shell with other processes beside it.
cat >/tmp/inside <<'EOF_INSIDE'
# inside NAME: runs forge from here, alone and 20 at once, and prints what came of it.
sleep 500 &
other=$!
$FORGE run --json true >/tmp/record-$1 2>/tmp/said-$1
echo "one $?"
jq -r '"manager " + .isolation.mechanisms.cgroup, "missing " + (.isolation.missing | join(" "))' \
    /tmp/record-$1 2>/dev/null
head -n 3 /tmp/said-$1 | sed 's/^/said /'
pids=
i=0
while [ $i -lt 20 ]; do
    i=$((i + 1))
    $FORGE run --memory 64M -- sh -c 'exit 7' 2>>/tmp/said-$1 &
    pids="$pids $!"
done
n=0
for pid in $pids; do
    wait $pid
    [ $? -eq 7 ] && n=$((n + 1))
done
echo "many $n"
$FORGE run -q --memory 48M -- tail /dev/zero 2>>/tmp/said-$1
echo "hog $?"
# The supervisor dies; the next command repairs.
$FORGE run -q -- sleep 66 2>/dev/null &
pid=$!
tries=0
until grep -qx sleep /proc/[0-9]*/comm 2>/dev/null && [ -n "$(find /sys/fs/cgroup -type d -name 'forge-[0-9]*')" ] ||
    [ $tries -ge 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
find /sys/fs/cgroup -type d -name 'forge-[0-9]*' | sed 's,/forge-[0-9].*,,;s,^,place ,'
kill -KILL $pid
wait $pid 2>/dev/null
$FORGE gc >/dev/null 2>&1
kill $other
wait $other 2>/dev/null
find /sys/fs/cgroup -type d -name 'forge-[0-9]*' | sed 's,^,left ,'
EOF_INSIDE

# judge NAME PLACE: reads what the case has printed from /tmp/out-NAME.
judge() {
    value() { sed -n "s/^$1 //p" "/tmp/out-$case"; }
    case=$1
    is "$1: a run succeeds" "$(value one)" 0 || note "$(cat "/tmp/out-$1" "/tmp/said-$1")"
    is "$1: ... by manager v2" "$(value manager)" v2
    is "$1: ... and nothing but Landlock is missing" "$(value missing)" landlock
    is "$1: 20 at once succeed" "$(value many)" 20 || note "$(sort "/tmp/said-$1" | uniq -c | head -n 5)"
    is "$1: memory is limited" "$(value hog)" 137
    is "$1: the runs' groups are in" "$(value place)" "$2"
    is "$1: after SIGKILL of the supervisor gc leaves no group" "$(value left)" ""
}

# in_group DIR COMMAND...: in that group.
in_group() {
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$@"
}

groups() { find $cg -mindepth 1 -type d | sort; }

new_home() {
    export FORGE_HOME="/tmp/home-$1"
    mkdir -p "$FORGE_HOME"
}

# ---- the real root, with all of the guest's processes, and no controller enabled anywhere

new_home root
is "the guest starts without a controller" "$(cat $cg/cgroup.subtree_control)" ""
sh /tmp/inside root >/tmp/out-root
judge root $cg/forge
is "root: one group is made, for good" "$(groups)" $cg/forge
sh /tmp/inside root >/tmp/out-root
judge root $cg/forge
is "root: ... and no more the second time" "$(groups)" $cg/forge

# ---- a group with a shell and others in it, below groups that give out nothing

rmdir $cg/forge
echo '-cpu -memory -pids' >$cg/cgroup.subtree_control
mkdir -p $cg/login/1/shell
new_home shell
in_group $cg/login/1/shell sh /tmp/inside shell >/tmp/out-shell
judge shell $cg/forge
is "shell: nobody is moved" "$(find $cg/login -mindepth 1 -type d | sort | xargs)" "$cg/login/1 $cg/login/1/shell"

# The nearest group that can give out controllers, not the root's.
mkdir -p $cg/near/1/shell
echo '+cpu +memory +pids' >$cg/near/cgroup.subtree_control
new_home near
in_group $cg/near/1/shell sh /tmp/inside near >/tmp/out-near
judge near $cg/near/forge

# A group's limit is not escaped by going above it: that is said, with the command that helps.
mkdir -p $cg/limited
echo 500M >$cg/limited/memory.max
new_home limited
# shellcheck disable=SC2016 # for the inner shell
in_group $cg/limited sh -c 'sleep 500 & $FORGE run true 2>/tmp/said-limited; echo $?; kill $!' \
    >/tmp/out-limited
is "limited: a run is refused" "$(cat /tmp/out-limited)" 125
ok "limited: ... because others live in the group" grep -q "other processes live in $cg/limited" /tmp/said-limited
ok "limited: ... with the command" grep -q "mkdir -p $cg/limited/init && " /tmp/said-limited
# ... which is what it says.
command=$(sed -n 's/^.*: \(mkdir -p .*init.cgroup.procs; done\).*/\1/p' /tmp/said-limited)
# shellcheck disable=SC2016 # for the inner shell
in_group $cg/limited sh -c 'sleep 500 & sh -c "$0"; $FORGE run -q true; echo $?; kill $!' \
    "$command" >/tmp/out-limited 2>&1
is "limited: after that command it succeeds" "$(tail -n 1 /tmp/out-limited)" 0
is "limited: ... below the limit" "$(find $cg/limited -mindepth 1 -type d | sort | xargs)" \
    "$cg/limited/forge $cg/limited/init"

# A group of another user's on the way is not used: who owns it could take root's limits away.
mkdir -p $cg/foreign/shell
chown -R 1000:1000 $cg/foreign
new_home foreign
in_group $cg/foreign/shell sh /tmp/inside foreign >/tmp/out-foreign
judge foreign $cg/forge

# ---- groups of a systemd that is not seen here, as in a container that shows the host's hierarchy

mkdir -p $cg/system.slice/engine-1.scope
echo '+cpu +memory +pids' >$cg/system.slice/cgroup.subtree_control
new_home unit
# shellcheck disable=SC2016 # for the inner shell
in_group $cg/system.slice/engine-1.scope sh -c 'sleep 500 & $FORGE run true 2>/tmp/said-unit; echo $?; kill $!' >/tmp/out-unit
is "unit: one that was not delegated is left alone" "$(cat /tmp/out-unit)" 125 || note "$(cat /tmp/said-unit)"
ok "unit: ... with the way out" grep -q -- '--cgroupns=private' /tmp/said-unit || note "$(cat /tmp/said-unit)"
is "unit: ... and so is what it is in" "$(find $cg/system.slice -mindepth 1 -type d)" $cg/system.slice/engine-1.scope
python3 -c 'import os, sys; os.setxattr(sys.argv[1], "trusted.delegate", b"1")' $cg/system.slice/engine-1.scope
in_group $cg/system.slice/engine-1.scope sh /tmp/inside unit >/tmp/out-unit 2>&1
judge unit $cg/system.slice/engine-1.scope
is "unit: one that was is used, and nothing around it" "$(find $cg/system.slice -mindepth 1 -type d | sort | xargs)" \
    "$cg/system.slice/engine-1.scope $cg/system.slice/engine-1.scope/forge-supervisors"

# ---- a container: a cgroup namespace whose root has processes

mkdir $cg/box
echo 600M >$cg/box/memory.max
cat >/tmp/container <<'EOF_CONTAINER'
mount --make-rprivate /
umount /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
sleep 400 &
sh /tmp/inside container
cat /proc/self/cgroup | sed 's/^0::/own /'
kill $!
EOF_CONTAINER
new_home container
in_group $cg/box unshare -C -m sh /tmp/container >/tmp/out-container 2>&1
judge container $cg/forge
is "container: all have stepped aside, together" "$(sed -n 's/^own //p' /tmp/out-container)" /forge-supervisors
is "container: below its limit, one group for all runs" "$(find $cg/box -mindepth 1 -type d | sort | xargs)" \
    "$cg/box/forge $cg/box/forge-supervisors"

# ---- an ordinary user, whose group also has the shell

# delegate DIR
delegate() {
    mkdir -p "$1"
    chown 1000:1000 "$1" "$1/cgroup.procs" "$1/cgroup.threads" "$1/cgroup.subtree_control"
}
# as_user DIR COMMAND...
as_user() {
    in_group "$1" setpriv --reuid 1000 --regid 1000 --clear-groups sh "$2" "$3"
}
delegate $cg/alice
for name in user again; do
    new_home $name
    chown 1000:1000 "$FORGE_HOME"
    [ $name = user ] || group=$cg/alice/forge-supervisors
    as_user "${group:-$cg/alice}" /tmp/inside $name >/tmp/out-$name 2>&1
    judge $name $cg/alice
    is "$name: one group more, for good" "$(find $cg/alice -mindepth 1 -type d)" $cg/alice/forge-supervisors
done
# The shell in a group below the one that was given: that one need not be moved.
delegate $cg/bob
delegate $cg/bob/shell
new_home below
chown 1000:1000 "$FORGE_HOME"
as_user $cg/bob/shell /tmp/inside below >/tmp/out-below 2>&1
judge below $cg/bob/forge
# Nothing was given.
mkdir $cg/carol
new_home nothing
chown 1000:1000 "$FORGE_HOME"
# shellcheck disable=SC2016 # for the inner shell
echo '$FORGE run true 2>/tmp/said-nothing; echo $?' >/tmp/refused
as_user $cg/carol /tmp/refused x >/tmp/out-nothing 2>&1
is "nothing: a run is refused" "$(cat /tmp/out-nothing)" 125
ok "nothing: ... and the fix named" grep -q 'forge setup --user' /tmp/said-nothing || note "$(cat /tmp/said-nothing)"
done_testing
