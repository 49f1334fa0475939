#!/usr/bin/env bats
# What a run sees and can change. Numbers in brackets are of the list of attacks that sandboxes
# have fallen to (docs/SECURITY.md).
# SPDX-License-Identifier: Apache-2.0

load ../lib/forge.bash
setup() { setup_forge; }
teardown() { teardown_forge; }

@test "[1] a read-only input file cannot be changed in any way" {
    mkdir in
    echo data >in/file
    before=$(hash_of in)
    OPTS=(-i in/file)
    holds ro-write "$T/in/file"
    [ "$(hash_of in)" = "$before" ]
}

@test "[1] a read-only input directory cannot be changed in any way" {
    mkdir -p in/sub
    echo data >in/sub/file
    chmod -R o+rX in
    before=$(hash_of in)
    OPTS=(-i in)
    holds ro-write "$T/in"
    holds ro-write "$T/in/sub"
    holds ro-write "$T/in/sub/file"
    [ "$(hash_of in)" = "$before" ]
}

@test "[1] an input that everybody may write is read-only all the same" {
    mkdir -m 777 in
    echo data >in/file
    chmod 666 in/file
    before=$(hash_of in)
    OPTS=(-i in)
    holds ro-write "$T/in/file"
    holds ro-write "$T/in"
    [ "$(hash_of in)" = "$before" ]
}

@test "[1] the system's directories are read-only" {
    holds ro-write /usr
    holds ro-write /usr/bin
    holds ro-write /etc/passwd
    holds ro-write /
    holds ro-write /sys/devices/system/cpu
}

@test "[1] the attack itself works: outside the same file is changed" {
    echo data >file
    before=$(hash_of file)
    breaks ro-write "$T/file"
    [ "$(hash_of file file.moved 2>/dev/null)" != "$before" ]
}

@test "[2] a read-only mount cannot be remounted, covered or taken away" {
    mkdir in
    echo data >in/file
    OPTS=(-i in)
    holds remount "$T/in"
    holds remount /usr
}

@test "[2] the attack itself works: outside a mount is covered" {
    skip_unless "an ordinary user cannot mount" unshare --mount true
    mkdir in
    run unshare --mount "$PROBE" remount "$T/in"
    [[ "$output" == "broke: "* ]]
}

@test "[3] a mount below a read-only input is read-only too" {
    skip_unless "an ordinary user cannot mount" unshare --mount true
    mkdir -p in/mounted
    unshare --mount sh -euc '
        mount -t tmpfs -o mode=0777 none "$1/in/mounted"
        echo data >"$1/in/mounted/file"; chmod 666 "$1/in/mounted/file"
        "$FORGE" run -q -i "$1/in" -- "$2" ro-write "$1/in/mounted/file"
        "$FORGE" run -q -i "$1/in" -- "$2" ro-write "$1/in/mounted"
        echo data | cmp - "$1/in/mounted/file"' sh "$T" "$PROBE"
}

@test "[4] links in an input lead into the sandbox only" {
    mkdir in
    echo marker-7 >secret
    ln -s /etc/shadow in/shadow
    ln -s ../secret in/up
    ln -s "$T/secret" in/whole
    ln -s ../../../../../../../../../../../../"$T/secret" in/far
    OPTS=(-i in)
    holds reads marker-7 "$T/in/up" "$T/in/whole" "$T/in/far"
    holds reads root: "$T/in/shadow"
    run "$PROBE" reads marker-7 "$T/in/up" "$T/in/far"
    [[ "$output" == "broke: "* ]]
}

@test "[4] an input that is a link is what it leads to, and nothing beside it" {
    mkdir real
    echo data >real/file
    echo marker-7 >real/other
    ln -s real/file link
    OPTS=(-i link)
    forge_run -- cat link "$T/real/file"
    [ "$(cat "$out")" = $'data\ndata' ]
    holds absent "$T/real/other"
}

@test "[5] [6] an input full of links named like system directories makes nothing on the host" {
    mkdir -p in victim
    for name in dev proc sys tmp etc oldroot; do ln -s "$T/victim" "in/$name"; done
    chmod 777 victim
    before=$(hash_of victim in)
    OPTS=(-i in)
    forge_run -- ls "$T/in/"
    [ "$status" -eq 0 ]
    [ "$(hash_of victim in)" = "$before" ]
    # ... and by the configuration's roots.
    configure "read_only: [$T/in]"
    OPTS=()
    forge_run -- ls "$T/in/"
    [ "$status" -eq 0 ]
    [ "$(hash_of victim in)" = "$before" ]
}

@test "[5] an input below a link cannot be planted through it" {
    mkdir -p real/sub victim
    echo data >real/sub/file
    ln -s real alias
    before=$(hash_of victim real)
    forge_run -i alias/sub -i alias/sub/file -- cat alias/sub/file
    [ "$status" -eq 0 ]
    [ "$(hash_of victim real)" = "$before" ]
}

@test "[8] no way around the root reaches a file of the host" {
    echo marker-8 >secret
    holds dotdot marker-8 "$T/secret"
    holds handle
    run "$PROBE" dotdot marker-8 "$T/secret"
    [[ "$output" == "broke: "* ]]
}

@test "[9] a descriptor that forge inherited does not reach the run" {
    exec 7</
    holds fds
    exec 7<&-
    exec 9>"$T/file"
    holds fds
    exec 9>&-
    run "$PROBE" fds 7</
    [[ "$output" == *"7 is /"* ]]
}

@test "[10] the run starts in its workdir, whatever forge's own directory is" {
    holds cwd
    cd /proc/self/fd 2>/dev/null
    holds cwd
    mkdir "$T/gone"
    cd "$T/gone"
    rmdir "$T/gone"
    holds cwd
    cd "$T"
    breaks cwd
}

@test "[11] the kernel's settings cannot be opened for writing" {
    holds proc-write
    holds sys-write
    breaks proc-write
    breaks sys-write
}

@test "[12] the kernel's secrets cannot be read" {
    holds proc-read
    breaks proc-read
}

@test "[13] there are no devices but the harmless ones, and none can be made" {
    holds devices
    breaks devices
    forge_run -- sh -c 'echo x >/dev/null && head -c 4 /dev/zero | od -An -tx1 &&
        head -c 2 /dev/urandom | wc -c && ! echo x >/dev/full'
    [ "$status" -eq 0 ]
}

@test "[14] a setuid program among the inputs gains nothing" {
    skip_unless "only root can do this" is_root
    mkdir in
    cp "$PROBE" in/suid
    chmod 6755 in/suid
    OPTS=(-i in)
    forge_run -- "$T/in/suid" identity
    [ "$status" -eq 0 ]
    forge_run -- "$T/in/suid" caps
    [ "$status" -eq 0 ]
    if command -v setcap >/dev/null && setcap all+ep in/suid 2>/dev/null; then
        forge_run -- "$T/in/suid" caps
        [ "$status" -eq 0 ]
    fi
}

@test "[16] a daemon that holds the workdir open is dead, and the workdir gone" {
    probe daemon forge-t-$$ 60
    [ "$status" -eq 0 ]
    no_process_named "forge-t-$$"
    [ ! -e "$(field .workdir)" ]
}

@test "[17] Landlock is the newest this kernel has, and the record says so" {
    forge_run -- true
    [[ "$(field .isolation.mechanisms.landlock)" =~ ^ABI\ [6-9]$ ]]
    [ "$(field .isolation.level)" = full ]
}

@test "[17] Landlock holds by itself: a pipe in a read-only input cannot be written" {
    mkdir in
    mkfifo in/pipe
    chmod 666 in/pipe
    exec 8<>in/pipe
    OPTS=(-i in)
    holds fifo "$T/in/pipe"
    [[ "$answer" == *EACCES* ]]
    # Mounts alone do not stop it: a read-only mount outside does not.
    run "$PROBE" fifo "$T/in/pipe"
    [[ "$output" == "broke: "* ]]
    exec 8>&-
}

@test "[27] homes, /run, the state of forge and the project do not exist inside" {
    # ... but for the way to the probe itself.
    holds top "$(cut -d/ -f2 <<<"$PROBE")"
    holds empty /home /run
    holds absent /root "$FORGE_HOME" "$FORGE_CONFIG" /run/docker.sock /var/run \
        /run/dbus/system_bus_socket /tmp/.X11-unix /etc/shadow /var/lib /opt /srv /boot \
        "$BATS_TEST_DIRNAME" /run/postgresql
    breaks top
    breaks absent "$FORGE_HOME"
}

@test "the workdirs and files of other runs are not visible" {
    mkdir ready
    background "$FORGE" run -q --id "other-$$" -- sh -c 'echo secret >mine; sleep 20'
    wait_for test -e "$work/scidex-analysis-other-$$/work/mine"
    holds absent "$work/scidex-analysis-other-$$"
    forge_run -- ls "$work"
    [ "$(grep -c scidex "$out")" -eq 1 ]
    kill "$pid" && wait "$pid" || true
    [ ! -e "$work/scidex-analysis-other-$$" ]
}

@test "a lease on a shared file is refused, and the runner's program cannot be replaced" {
    holds lease /usr/bin/env
    holds own-exe
    echo x >own
    breaks lease "$T/own"
}

@test "the workdir, /tmp and /dev/shm can be written, and run what is in them" {
    forge_run -- sh -euc 'for dir in . /tmp /dev/shm /var/tmp; do
        printf "#!/bin/sh\necho ran in %s\n" $dir >$dir/script; chmod +x $dir/script; $dir/script
        done'
    [ "$status" -eq 0 ]
    [ "$(grep -c '^ran in' "$out")" -eq 4 ]
}

@test "/tmp and /dev/shm are this run's alone" {
    forge_run -- sh -c 'echo x >/tmp/left-'$$'; echo x >/dev/shm/left-'$$
    [ "$status" -eq 0 ]
    [ ! -e "/tmp/left-$$" ]
    [ ! -e "/dev/shm/left-$$" ]
    forge_run -- ls "/tmp/left-$$" "/dev/shm/left-$$"
    [ "$status" -ne 0 ]
}
