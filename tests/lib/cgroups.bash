# cgroups.bash: the cgroup directories that forge would use here. For sh and bash alike.
# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0

# Our own directory of each hierarchy that forge uses, one a line.
own_cgroups() {
    while IFS=: read -r own_id own_list own_path; do
        case $own_id:$own_list in
        0:) own_mount=/sys/fs/cgroup/unified ;;
        *:memory | *:pids | *:cpu | *:cpuacct | *:cpu,cpuacct | *:blkio) own_mount=/sys/fs/cgroup/$own_list ;;
        *) continue ;;
        esac
        # A unified host has one mount for all.
        if [ ! -d "$own_mount" ]; then
            [ -e /sys/fs/cgroup/cgroup.controllers ] || continue
            own_mount=/sys/fs/cgroup
        fi
        echo "$own_mount${own_path%/}"
    done </proc/self/cgroup
}
