#!/bin/sh
# quota-test.sh FORGE PROBE: disk limits by project quota, inside the guest of quota.sh, whose
# disk is ubda. Nothing that the measuring supervisor could miss gets past these. TAP.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../tools/tap.sh"

cp "$1" /tmp/forge
cp "$2" /tmp/forge-probe
chmod 755 /tmp/forge /tmp/forge-probe
mkdir -p /tmp/disk /tmp/home
mount -t xfs -o prjquota /dev/ubda /tmp/disk
export FORGE_HOME=/tmp/home
cat >/tmp/forge.yaml <<Y
workdir: /tmp/disk/{id}
sandbox: {allow_missing: [landlock]}
Y

# attack WORDS...: the probe under a limit of 16 MiB and 2000 files; its line in $answer.
attack() {
    # shellcheck disable=SC2086 # words
    /tmp/forge run --json --config /tmp/forge.yaml --disk 16M --inodes 2000 --memory 256M \
        --timeout 60s -- /tmp/forge-probe $1 >/tmp/record 2>/tmp/stderr
    answer=$(cat "$(jq -r .logs.stdout /tmp/record)")
}
field() { jq -r "$1" /tmp/record; }

for how in fill-one fill-many fill-deleted fill-mapped fill-sent fill-hidden; do
    attack "$how 64"
    is "$how meets the limit" "$(echo "$answer" | cut -c1-5)" held: || note "$answer"
    is "... exactly" "$(field '.usage.disk_peak_bytes <= 16 * 1048576')" true
done
is "the record names the mechanism" "$(field .isolation.mechanisms.disk)" "project quota"
attack "fill-inodes 3000"
is "so do files" "$(echo "$answer" | cut -c1-5)" held: || note "$answer"
is "... exactly" "$(field '.usage.inodes_peak <= 2000')" true

/tmp/forge run --json --config /tmp/forge.yaml --disk 16M -- \
    sh -c 'head -c 20M /dev/zero | split -b 1M' >/tmp/record 2>/tmp/stderr
is "a run that fails of it failed because of it" "$(field '.status + " " + .reason')" "failed disk"
# The next run has the same uid, and so the same project.
/tmp/forge run --json --config /tmp/forge.yaml -- sh -c 'head -c 40M /dev/zero >file' \
    >/tmp/record 2>/tmp/stderr
is "limits of one run are not those of the next" "$(field .status)" succeeded
# Objects on the same disk are files of runs that are over: they must not count for the next.
mkdir -m 700 /tmp/disk/home
for i in 1 2 3 4 5; do
    FORGE_HOME=/tmp/disk/home /tmp/forge run --json --config /tmp/forge.yaml --disk 16M -o x -- \
        sh -c "echo $i >x; head -c 6M /dev/zero >>x" >/tmp/record 2>/tmp/stderr
    is "outputs of earlier runs do not count, $i" "$(field .status)" succeeded || note "$(field .completion_notes)"
    is "... in what is measured neither" "$(field '.usage.disk_peak_bytes < 8 * 1048576')" true
done
is "they are the files themselves" "$(find /tmp/disk/home/objects -type f | wc -l)" 5
rm -rf /tmp/disk/home
# A workdir that is kept belongs to its user, and not to the next run with the same uid.
for i in 1 2 3; do
    /tmp/forge run --json --config /tmp/forge.yaml --disk 16M --keep -o none -- \
        sh -c 'mkdir d; head -c 6M /dev/zero >d/x' >/tmp/record 2>/tmp/stderr
    is "workdirs that are kept do not count, $i" "$(field .status)" succeeded || note "$(field .completion_notes)"
    is "... in what is measured neither" "$(field '.usage.disk_peak_bytes < 8 * 1048576')" true
    head -c 6M /dev/zero >"$(field .workdir)/y"
done
rm -rf /tmp/disk/*
is "nothing is left on the disk" "$(ls /tmp/disk)" ""
done_testing
