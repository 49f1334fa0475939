#!/bin/sh
# container-test.sh FORGE: forge in a privileged container of Debian's podman, inside the guest of run-uml.sh,
# so on a unified hierarchy without systemd. The image is the guest's own /usr. TAP.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../tools/tap.sh"

cp "$1" /tmp/forge
chmod 755 /tmp/forge
mkdir -p /tmp/podman /tmp/rootfs/proc /tmp/rootfs/sys /tmp/rootfs/dev /tmp/rootfs/tmp /tmp/rootfs/etc /tmp/share
# What containers may be given: the guest's kernel lacks the limits that podman would raise.
cat >/tmp/podman/containers.conf <<'X'
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
X
export CONTAINERS_CONF=/tmp/podman/containers.conf
printf 'sandbox:\n  allow_missing: [landlock]\n' >/tmp/share/forge.yaml
cat >/tmp/share/inside <<'X'
export FORGE_HOME=/tmp/home FORGE_CONFIG=/share/forge.yaml
sleep 300 &
for i in 1 2 3; do
    /share/forge run --json true >/tmp/record 2>/tmp/said || cat /tmp/said
    jq -r '.status + " " + .isolation.mechanisms.cgroup + " " + (.isolation.missing | join(" "))' /tmp/record
done
pids=
for i in 1 2 3 4 5 6 7 8; do
    /share/forge run --memory 64M -- sh -c 'exit 7' 2>/dev/null &
    pids="$pids $!"
done
for pid in $pids; do
    wait "$pid"
    echo "many $?"
done
/share/forge run --memory 48M -- tail /dev/zero 2>/dev/null
echo "hog $?"
find /sys/fs/cgroup -mindepth 1 -type d | sort | sed 's/^/group /'
/share/forge setup --user tester --json >/tmp/report || cat /tmp/report
jq -r '.actions[] | select(.name == "delegation") | "setup " + .state' /tmp/report
mkdir -p /tmp/tester
chown 4242 /tmp/tester
cat >/tmp/as-tester <<'Y'
/etc/init.d/forge-cgroups enter tester $$
export FORGE_HOME=/tmp/tester/home
sleep 200 &
for i in 1 2 3; do
    setpriv --reuid 4242 --regid 4242 --clear-groups /share/forge run --json true >/tmp/user-record 2>/tmp/said || cat /tmp/said
    jq -r '"user " + .status + " " + (.isolation.missing | join(" "))' /tmp/user-record
done
Y
sh /tmp/as-tester
/share/forge setup --undo >/dev/null
echo "undo $?"
find /etc -name '*forge*' | sed 's/^/after /'
X
cp /tmp/forge /tmp/share/forge
printf 'root:x:0:0::/root:/bin/sh\ntester:x:4242:4242::/tmp:/bin/sh\n' >/tmp/rootfs/etc/passwd
chmod 1777 /tmp/rootfs/tmp

for engine in "--cgroupns=private" "--cgroupns=private --memory 400m --pids-limit 200"; do
    # shellcheck disable=SC2086 # words
    podman --root /tmp/podman/root --runroot /tmp/podman/run --tmpdir /tmp/podman/tmp --storage-driver vfs \
        run --rm --privileged $engine --network none -v /usr:/usr:ro -v /lib:/lib:ro -v /lib64:/lib64:ro \
        -v /bin:/bin:ro -v /tmp/share:/share:ro --rootfs /tmp/rootfs sh /share/inside >/tmp/out 2>&1
    is "podman --privileged $engine: the container ends well" $? 0 || note "$(tail -n 5 /tmp/out)"
    is "... runs succeed with every limit" "$(grep -c '^succeeded v2 landlock$' /tmp/out)" 3 || note "$(head -n 9 /tmp/out)"
    is "... also 8 at once" "$(grep -c '^many 7$' /tmp/out)" 8
    is "... memory is limited" "$(sed -n 's/^hog //p' /tmp/out)" 137
    is "... and no group is made for a call" "$(sed -n 's,^group /sys/fs/cgroup/,,p' /tmp/out | xargs)" \
        "forge forge-supervisors"
    is "... setup gives a user of the container a group" "$(sed -n 's/^setup //p' /tmp/out)" made
    is "... in which the user's runs have every limit" "$(grep -c '^user succeeded landlock$' /tmp/out)" 3 ||
        note "$(tail -n 9 /tmp/out)"
    is "... --undo takes it back" "$(sed -n 's/^undo //p;s/^after //p' /tmp/out)" 0
done
done_testing
