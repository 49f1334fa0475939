#!/bin/sh
# power-cut-guest.sh BOOT HOW LAST FS: one life of the guest of power-cut.sh. Sees to what the last
# power cut left on the disk, checks it, and makes runs until the power goes. Everything that the
# host must know of is a line on the serial port, written when forge has said it and not before.
#   HOW   lazy: nothing is written to the disk unless somebody waits for it. eager: at once.
#   LAST  yes: no power cut will follow.
# SPDX-License-Identifier: Apache-2.0
here=$(dirname "$(realpath "$0")")
boot=$1 how=$2 last=$3 fs=$4
disk=/tmp/disk cg=/sys/fs/cgroup
homes='sqlite queue away postgres'

exec 9>/dev/ttyS0
tell() { printf '%s\n' "$*" >&9; }
# bad WHAT: each line of standard input is something that is wrong.
bad() { sed "s/^/bad $1: /" >&9; }

# ---- the machine ----

# The host's name is in every record; who has another one is not of this host.
hostname forge-guest
cp "$RUN/forge" /tmp/forge
FORGE=/tmp/forge
echo '+cpu +memory +pids' >$cg/cgroup.subtree_control
mkdir $cg/tests
echo '+cpu +memory +pids' >$cg/tests/cgroup.subtree_control

if [ "$how" = lazy ]; then
    options=commit=300
    echo 0 >/proc/sys/vm/dirty_writeback_centisecs
    echo 360000 >/proc/sys/vm/dirty_expire_centisecs
else
    options=commit=1
    echo 5 >/proc/sys/vm/dirty_writeback_centisecs
    echo 10 >/proc/sys/vm/dirty_expire_centisecs
fi

# The kernel brings the journal in; what is there then must be sound.
mkdir $disk
[ "$fs" != xfs ] || options=defaults
mount -t "$fs" -o "$options" /dev/ubda $disk 2>&1 | bad mount
umount $disk
case $fs in
ext4) fsck=$(e2fsck -fn /dev/ubda 2>&1) ;;
btrfs) fsck=$(btrfs check --readonly /dev/ubda 2>&1) ;;
xfs) fsck=$(xfs_repair -n /dev/ubda 2>&1) ;;
esac || echo "$fsck" | bad fsck
mount -t "$fs" -o "$options" /dev/ubda $disk 2>&1 | bad mount
mkdir -p $disk/work /tmp/work

# ---- forge ----

# use HOME: the environment of that one.
use() {
    home=$1
    export FORGE_HOME="$disk/$1" FORGE_CONFIG="/tmp/$1.yaml"
    case $1 in
    sqlite | queue) unset FORGE_STORE ;;
    # Not reached while runs are made, but when they are checked: its directory is away.
    away) export FORGE_STORE=sqlite:$disk/server/forge.db ;;
    postgres) export FORGE_STORE="postgresql:///forge?host=/nonexistent" ;;
    esac
    # On the same disk an output becomes an object by a link, from another one by a copy.
    case $1 in
    sqlite | away) work="$disk/work/{run_id}" ;;
    *) work='/tmp/work/{run_id}' ;;
    esac
    printf '%s\n' 'sandbox:' '  allow_missing: [landlock]' "workdir: $work" >"$FORGE_CONFIG"
    [ "$1" != queue ] || printf '%s\n' 'host:' '  budget:' '    runs: 1' >>"$FORGE_CONFIG"
}

server_is() {
    case $1 in
    away) [ ! -e $disk/server ] || mv -T $disk/server $disk/server.off ;;
    here) mv -T $disk/server.off $disk/server ;;
    esac
}

# in_group NAME COMMAND...: alone in a group of its own.
in_group() {
    group=$cg/tests/$1
    shift
    mkdir "$group"
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$@"
}

# What it says and leaves tells whose it is. $0 name, $1 length of the log, $2 exit status, $3 many files.
payload='says="$0 says" i=0
while [ $i -lt $1 ]; do says="$says
$says" i=$((i + 1)); done
echo "$says"; echo "$0 complains" >&2
mkdir outputs; echo same >outputs/a; echo same >outputs/b; echo "$0" >outputs/key
head -c 60K /dev/urandom >outputs/big
[ $3 = no ] || { mkdir outputs/many; i=0; while [ $i -lt 40 ]; do echo "$0 $i" >outputs/many/$i; i=$((i + 1)); done; }
exit $2'

# start run|submit NAME I [OPTION...]: one of them, as the number wants it.
start() {
    verb=$1 name=$2 i=$3 status=0 many=no
    shift 3
    [ $((i % 5)) -ne 4 ] || status=3
    # More than a few files bring a syncfs, and with it what nobody has waited for: not in every life.
    [ $((i % 4)) -ne 2 ] || [ $((boot % 2)) -eq 1 ] || many=yes
    [ $many = no ] || set -- "$@" -o 'outputs/many/*'
    case $home-$verb-$((i % 2)) in
    sqlite-run-1) ;; # the store hears of it without anybody waiting for that
    sqlite-* | queue-*) set -- "$@" --idempotency-key "$name" ;;
    esac
    in_group "$driver-$name" $FORGE "$verb" --id "$name" --timeout 60s -o outputs/a -o outputs/b -o outputs/big \
        -o outputs/key "$@" -- sh -c "$payload" "$name" $((i % 11)) $status $many 2>>/tmp/said
}

# ---- making runs ----

# submit NAME I: sets $id.
submit() {
    tell "try $home $1 $2"
    id=$(start submit "$1" "$2") && tell "submitted $home $1 $id"
}
await() {
    $FORGE wait -q "$2" 2>>/tmp/said
    tell "verdict $home $1 $2 $?"
}

# again NAME I: a key that was used before the power went; whoever has it, it is one run.
again() {
    use "$home"
    submit "$1" "$2" && await "$1" "$id"
}

drive_one_by_one() {
    i=0
    while :; do
        i=$((i + 1))
        submit "$home-$boot-$i" $i && await "$home-$boot-$i" "$id"
    done
}

drive_in_front() {
    i=0
    while :; do
        i=$((i + 1)) name=$home-$boot-f$i
        tell "try $home $name $i"
        # -q: not a word before the verdict
        start run "$name" $i -q
        tell "verdict $home $name - $?"
    done
}

drive_many() {
    i=0
    while :; do
        ids=
        for _ in 1 2 3; do
            i=$((i + 1))
            submit "$home-$boot-$i" $i && ids="$ids $home-$boot-$i:$id"
        done
        for one in $ids; do
            await "${one%:*}" "${one#*:}"
        done
    done
}

# drive HOME HOW: in the background.
drive() {
    driver=$2
    use "$1"
    "drive_$2" &
}

# What was tried in the last life, whether it was confirmed or not.
try_again() {
    awk -v from="-$((boot - 1))-" '$1 == "try" && ($2 == "sqlite" || $2 == "queue") && index($3, from) &&
        $3 !~ /-f[0-9]*[13579]$/ && !seen[$3]++ { print $2, $3, $4 }' "$RUN/told" >/tmp/again
    driver=again
    while read -r home name i; do
        again "$name" "$i"
    done </tmp/again
}

# ---- checking ----

gc_all() {
    for home; do
        use "$home"
        [ -d "$FORGE_HOME" ] || continue
        $FORGE gc >"/tmp/gc-$home" 2>&1 || bad "$home: gc" <"/tmp/gc-$home"
        [ "$($FORGE gc 2>&1 | tee /tmp/gc2 | tail -n 1)" = "nothing to repair" ] ||
            bad "$home: a second gc" </tmp/gc2
    done
}

check() {
    # shellcheck disable=SC2086 # words
    "$here/power-cut-check.py" $disk "$RUN/told" "$@" 2>&1 | bad check
}

server_is away
mkdir -p $disk/server.off
tell mounted
# shellcheck disable=SC2086 # words
gc_all $homes
check here:away here:postgres
server_is here
gc_all away
check sqlite queue away
# shellcheck disable=SC2126 # of all files together
tell "checked $(grep -hv '^nothing' /tmp/gc-* 2>/dev/null | wc -l) repairs, $(find $disk/work -mindepth 1 -maxdepth 1 | wc -l) workdirs left"
if [ "$last" = yes ]; then
    try_again
    gc_all sqlite queue
    check sqlite queue away
    tell over
    exit
fi
server_is away
tell loading
try_again &
drive sqlite one_by_one
drive sqlite in_front
drive queue many
drive away one_by_one
drive postgres in_front
wait
