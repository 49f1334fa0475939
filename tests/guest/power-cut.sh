#!/bin/bash
# power-cut.sh FORGE [CUTS [FS]]: a User-Mode Linux guest makes runs on a disk with ext4 (FS), and is killed with all its processes
# CUTS (12) times at any moment: what its kernel had not written to the disk by then is lost. After each,
# the guest is booted on that disk, and everything that forge had confirmed must be there. TAP.
# POWER_CUT_SEED repeats the moments of an earlier one; POWER_CUT_KEEP=1 keeps the disk.
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$(realpath "$0")")
. "$here/../tools/tap.sh"

forge=$(realpath "$1")
cuts=${2:-12}
fs=${3:-ext4}
for need in linux.uml "mkfs.$fs" unshare; do
    command -v "$need" >/dev/null && continue
    case $need in
    linux.uml) need=user-mode-linux ;;
    esac
    skip "power cuts" "$need is not installed"
    done_testing
    exit 0
done
# The guest's processes are a pid namespace: when its first dies, so do all, before anybody hears of it.
apart=(unshare --pid --fork --kill-child)
if ! "${apart[@]}" true 2>/dev/null; then
    skip "power cuts" "needs root and pid namespaces"
    done_testing
    exit 0
fi

dir=$(mktemp -d)
# On a tmpfs: what the guest's disk has was written by the guest, and nobody waits for the host's.
fast=$(mktemp -d -p /dev/shm)
guest=
leave() {
    [ -z "$guest" ] || cut_power
    if [ -n "${POWER_CUT_KEEP:-}" ]; then
        note "kept: $dir $fast"
    else
        rm -rf "$dir" "$fast"
    fi
}
trap leave EXIT
trap 'exit 1' INT TERM

# boot N HOW LAST: $guest is its ancestor here, $line brings its serial port.
boot() {
    rm -rf "$dir/run"
    mkdir "$dir/run"
    cp "$dir/told" "$dir/run/told"
    cp "$forge" "$dir/run/forge" # wherever it is, there the guest can see it
    printf '%s\n' "exec sh '$here/power-cut-guest.sh' '$1' '$2' '$3' '$fs'" >"$dir/run/command"
    mkfifo "$dir/run/line"
    # One CPU, or the tracer and the traced chase each other over two.
    TMPDIR=$fast "${apart[@]}" taskset -c "${UML_CPU:-0}" "$here/linux-uml" mem=384M root=/dev/root \
        rootfstype=hostfs rootflags=/ ro init="$here/uml-init" WORK="$here/../.." RUN="$dir/run" \
        uml_dir="$dir/run/" umid=guest ubd0="$fast/disk" con=null con0=null,fd:1 con1=null,fd:1 \
        ssl0=null,fd:3 loglevel=1 </dev/null >"$dir/console" 2>&1 3>"$dir/run/line" &
    guest=$!
    exec {line}<"$dir/run/line"
}

# Kills the first process of the namespace; the others are gone when it has been waited for.
cut_power() {
    local init=
    { read -r init <"/proc/$guest/task/$guest/children"; } 2>/dev/null # no line end; gone by itself
    [ -z "$init" ] || kill -KILL "$init"
    wait "$guest" 2>/dev/null
    guest=
}

now_msec() { echo $((${EPOCHREALTIME/./} / 1000)); }

# listen UNTIL MSEC: takes what the guest tells, until that word or for so long. 0: the word; 1: the
# time is over; 2: the guest is.
listen() {
    local text left deadline=$(($(now_msec) + $2))
    while left=$((deadline - $(now_msec))) && [ $left -gt 0 ]; do
        printf -v left '%d.%03d' $((left / 1000)) $((left % 1000))
        IFS= read -r -t "$left" text <&"$line" || {
            [ $? -gt 128 ] && return 1
            return 2
        }
        hear "${text%$'\r'}"
        [ "${text%% *}" != "$1" ] && [ "${text%$'\r'}" != "$1" ] || return 0
    done
    return 1
}

# A line that was cut is none: it has no end. What it says was confirmed all the same, but who would know.
hear() {
    case ${1%% *} in
    bad) echo "${1#bad }" >>"$dir/bad" ;;
    checked) repairs=${1#checked } ;;
    try | submitted | verdict) echo "$1" >>"$dir/told" ;;
    esac
}

# checked NAME: what the guest has found.
checked() {
    is "$1" "$(head -n 20 "$dir/bad")" ""
}

started=$EPOCHSECONDS
note "seed ${POWER_CUT_SEED:=$RANDOM}"
RANDOM=$POWER_CUT_SEED
truncate -s 512M "$fast/disk"
case $fs in
ext4) mkfs.ext4 -q -F "$fast/disk" ;;
*) "mkfs.$fs" -q -f "$fast/disk" >/dev/null ;;
esac
: >"$dir/told"
after="the first boot"
done_cuts=0
for ((n = 1; n <= cuts; n++)); do
    : >"$dir/bad"
    how=lazy
    ((n % 3)) || how=eager
    boot "$n" "$how" no
    # Every fourth: while what the last one left is being repaired.
    if ((n % 4 == 0)); then
        moment=$((RANDOM % 2000)) word=mounted
    else
        moment=$((500 + RANDOM % 3000)) word=loading
    fi
    listen "$word" 60000 || break
    [ $word = mounted ] || checked "$after: all that was confirmed is there ($repairs)"
    listen nothing "$moment"
    [ $? -eq 1 ] || break
    cut_power
    listen nothing 10000 # what it said last
    exec {line}<&-
    done_cuts=$((done_cuts + 1))
    after="power cut $n ($how, $moment ms after \"$word\")"
done
is "the power was cut $cuts times" $done_cuts "$cuts" || note "$(tail -n 20 "$dir/console")"
if [ $done_cuts -eq "$cuts" ]; then
    : >"$dir/bad"
    boot "$n" lazy yes
    listen over 60000
    is "$after: the guest boots once more and ends" $? 0
    listen nothing 10000
    [ -z "$guest" ] || cut_power
    checked "... all that was confirmed is there; each key is still one run ($repairs)"
fi
count() { grep -c "^$1 " "$dir/told"; }
note "$(count try) runs begun, $(count submitted) submissions and $(count verdict) verdicts confirmed, $((EPOCHSECONDS - started)) s"
ok "there was something to lose" test "$(count submitted)" -ge "$cuts" -a "$(count verdict)" -ge "$cuts"
done_testing
