#!/bin/sh
# rootless-test.sh FORGE: runs in containers of an ordinary user's Podman service, in the guest of run-uml.sh: a
# unified hierarchy, of which the user has a group with the controllers. TAP.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../tools/tap.sh"

uid=12345
r=/tmp/rootless
group=/sys/fs/cgroup/user
mkdir -m 755 "$r"
mkdir "$r/home" "$r/run" "$r/tmp" "$r/forge" "$r/work" "$r/bin" "$r/image" "$r/image/bin" "$r/image/tmp"
cp "$1" "$r/bin/forge"
cp "$(find "$(dirname "$1")/.." -name forge-shim -type f | head -n 1)" "$r/bin/"
cp /bin/busybox "$r/image/bin/"
for name in sh cat echo sleep id tail; do
    ln -s busybox "$r/image/bin/$name"
done
tar -C "$r/image" --numeric-owner --owner=0 --group=0 -cf "$r/tiny.tar" .

# What an administrator gives the user: a name, subordinate ids, a group.
cp /etc/passwd /etc/group "$r/"
echo "rootless:x:$uid:$uid::$r/home:/bin/sh" >>"$r/passwd"
echo "rootless:x:$uid:" >>"$r/group"
echo "rootless:200000:65536" | tee "$r/subuid" >"$r/subgid"
for file in passwd group subuid subgid; do
    mount --bind "$r/$file" "/etc/$file"
done
echo "+cpu +memory +pids +io" >/sys/fs/cgroup/cgroup.subtree_control
mkdir "$group" "$group/service"
chown "$uid:$uid" "$group" "$group/service"
for file in cgroup.procs cgroup.subtree_control cgroup.threads; do
    chown "$uid:$uid" "$group/$file" "$group/service/$file"
done

cat >"$r/containers.conf" <<'X'
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
X
cat >"$r/forge.yaml" <<X
workdir: $r/work/{run_id}
sandbox: {allow_missing: [landlock]}
executors:
  podman: {kind: container, socket: $r/podman.sock, image: tiny}
X
chown -R "$uid:$uid" "$r"
chmod 700 "$r/home" "$r/run" "$r/forge" "$r/work"

# The user's processes see that group as the root of the hierarchy, as in a session of their own.
cat >"$r/enter" <<X
umount /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
echo \$\$ >/sys/fs/cgroup/service/cgroup.procs
echo "+cpu +memory +pids +io" >/sys/fs/cgroup/cgroup.subtree_control
cd $r/home
exec setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$PATH" HOME=$r/home XDG_RUNTIME_DIR=$r/run \\
    CONTAINERS_CONF=$r/containers.conf FORGE_HOME=$r/forge FORGE_CONFIG=$r/forge.yaml sh $r/session
X
cat >"$r/session" <<'X'
r=/tmp/rootless
podman_of_user() { podman --root "$r/store" --runroot "$r/rr" --tmpdir "$r/tmp" --storage-driver vfs "$@"; }
podman_of_user import "$r/tiny.tar" tiny >"$r/log" 2>&1
podman_of_user system service --time=0 "unix://$r/podman.sock" </dev/null >>"$r/log" 2>&1 &
service=$!
n=0
until curl -sf --unix-socket "$r/podman.sock" http://engine/v1.41/_ping >/dev/null || [ $n -ge 100 ]; do
    n=$((n + 1))
    sleep 0.2
done
# try NAME OPTION... -- COMMAND...: "NAME exit-status status reason", and a line with the notes.
try() {
    name=$1
    shift
    status=0
    "$r/bin/forge" run --json --executor podman "$@" >"$r/$name.json" 2>"$r/$name.err" </dev/null || status=$?
    echo "$name $status $(jq -r '.status + " " + .reason' "$r/$name.json")"
    echo "$name.notes $(jq -r .completion_notes "$r/$name.json" | tr '\n' ' ') $(grep -v '^{' "$r/$name.err" | tr '\n' ' ')"
    out=$(jq -r .logs.stdout "$r/$name.json")
}
try good -o f -- sh -c 'echo out; echo 12 >f'
echo "good.out $(cat "$out")"
echo "good.outputs $(jq -r '[.outputs[] | .path + " " + (.size | tostring)] | join(" ")' "$r/good.json")"
echo "good.level $(jq -r '.isolation.level + " " + (.isolation.missing | sort | join(" "))' "$r/good.json")"
echo "good.usage $(jq -r '.usage.memory_peak_bytes > 0 and .usage.cpu_seconds > 0 and .usage.pids_peak > 0' "$r/good.json")"
try code -- sh -c 'exit 7'
try memory --memory 32M -- tail /dev/zero
try child --memory 32M --timeout 60s -- sh -c 'tail /dev/zero; sleep 600'
try pids --pids 5 -- sh -c 'for i in 1 2 3 4 5 6 7 8; do sleep 5 & done; wait'
try wall --timeout 1s --grace 200ms -- sleep 600
try network -- cat /proc/net/dev
echo "network.out $(sed -n 's/^ *\([a-z0-9]*\):.*/\1/p' "$out" | xargs)"
try user -- sh -c 'id -u; cat /proc/self/status'
echo "user.out $(grep -E '^(CapEff|NoNewPrivs|Seccomp):' "$out" | tr -d '\t ' | tr '\n' ' ')"
echo "left $(podman_of_user ps -aq | wc -l) $(find "$r/work" "$r/forge/containers" -mindepth 1 | wc -l)"
echo "groups $(find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d ! -name service ! -name conmon | wc -l)"
kill "$service"
X
sh -c "echo \$\$ >$group/cgroup.procs; exec unshare -m -C --propagation private sh $r/enter" >/tmp/out 2>&1
said() { sed -n "s/^$1 //p" /tmp/out; }
verdict() { is "rootless Podman: $3" "$(said "$1")" "$2" || note "$(said "$1.notes")" "$(tail -n 3 "$r/log")"; }

verdict good "0 succeeded exit" "a command succeeds" || note "$(cat /tmp/out)"
is "... its output" "$(said good.out)" out
is "... its file" "$(said good.outputs)" "f 3"
is "... all but Landlock, which this kernel does not have" "$(said good.level)" "container landlock"
is "... its usage" "$(said good.usage)" true
verdict code "7 failed exit" "an exit code"
verdict memory "137 killed memory" "memory is limited, and the reason is typed"
verdict child "137 killed memory" "when a child is killed for memory, so is the rest"
verdict pids "2 failed pids" "the number of processes is limited"
verdict wall "124 killed wall_time" "wall time is limited"
verdict network "0 succeeded exit" "without a network"
is "... there is only loopback" "$(said network.out)" lo
verdict user "0 succeeded exit" "a user without privileges"
is "... no capabilities, no new ones, a filter" "$(said user.out)" "CapEff:0000000000000000 NoNewPrivs:1 Seccomp:2 "
is "... no container and no directory is left" "$(said left)" "0 0"
is "... and no cgroup" "$(said groups)" 0
done_testing
