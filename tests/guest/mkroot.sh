#!/bin/bash
# mkroot.sh: prints the path of a Debian root with systemd as an ext4 image, building it when
# the cache does not have it. The image knows nothing of forge: its one service mounts the
# directory that the kernel's command line names (forge.share=DIR) and runs guest-run in it.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

cache=${FORGE_GUEST_CACHE:-${HOME:-/root}/.cache/forge-guest}
# Another recipe is another image.
image=$cache/root-$(sha256sum "$0" | cut -c 1-12).ext4
if [ -e "$image" ]; then
    echo "$image"
    exit 0
fi

# The sources of this machine, whatever mirror they name.
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    if [ -s "$file" ] && grep -q '^[^#]' "$file"; then
        sources+=("$file")
    fi
done
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

mkdir -p "$cache"
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT

cat >"$work/guest.service" <<'UNIT'
[Unit]
Description=forge tests
After=basic.target systemd-logind.service dbus.service user@1000.service
Wants=systemd-logind.service
[Service]
Type=oneshot
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/console
ExecStart=/usr/local/sbin/guest-start
[Install]
WantedBy=multi-user.target
UNIT
cat >"$work/guest-start" <<'START'
#!/bin/sh
# Runs the share's guest-run, leaves its status there and switches the machine off.
share=$(sed -n 's/.*forge\.share=\([^ ]*\).*/\1/p' /proc/cmdline)
mkdir -p /mnt/share && mount -t hostfs none /mnt/share -o "$share"
/bin/sh /mnt/share/guest-run </dev/null
echo $? >/mnt/share/rc
sync
systemctl poweroff --force --force
START
chmod 755 "$work/guest-start"

# What only costs time at boot, and what a guest without devices cannot do.
masked='getty@tty1.service serial-getty@ttyS0.service systemd-journal-flush.service
    systemd-random-seed.service systemd-update-utmp.service systemd-modules-load.service
    dev-mqueue.mount dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount
    sys-kernel-config.mount sys-fs-fuse-connections.mount apt-daily.timer
    apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
    systemd-sysctl.service systemd-machine-id-commit.service'
# shellcheck disable=SC2016 # "$1" is the new root, for the hook's shell
mmdebstrap --quiet --variant=minbase \
    --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,jq,libjansson4,libyaml-0-2 \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='chroot "$1" useradd -m -u 1000 -s /bin/bash tester' \
    --customize-hook='mkdir -p "$1/var/lib/systemd/linger"; touch "$1/var/lib/systemd/linger/tester"' \
    --customize-hook='echo guest >"$1/etc/hostname"; : >"$1/etc/fstab"' \
    --customize-hook="copy-in $work/guest.service /etc/systemd/system" \
    --customize-hook="copy-in $work/guest-start /usr/local/sbin" \
    --customize-hook='chroot "$1" systemctl enable guest.service' \
    --customize-hook="chroot \"\$1\" systemctl mask ${masked//$'\n'/ }" \
    --customize-hook='rm -rf "$1/var/cache/apt" "$1/var/lib/apt/lists"' \
    "$suite" "$work/root.tar" "${sources[@]}" >"$work/log" 2>&1 || {
    tail -20 "$work/log" >&2
    exit 1
}
mkdir "$work/root"
tar -C "$work/root" -xf "$work/root.tar"
truncate -s 500M "$work/root.ext4"
mkfs.ext4 -q -F -O ^has_journal -d "$work/root" "$work/root.ext4"
rm -f "$cache"/root-*.ext4
mv "$work/root.ext4" "$image"
echo "$image"
