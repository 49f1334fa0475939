#!/usr/bin/env bats
# Guarded files: what a run changes through a hole in its sandbox is found and named; what others change is not
# the run's. As root by a watch, as an ordinary user by snapshots.
# SPDX-License-Identifier: Apache-2.0

setup() {
    . "$BATS_TEST_DIRNAME/../lib/guard.bash"
    with=() pids=()
    setup_guard
}
teardown() { teardown_guard; }

@test "the hole is in no program but that of the tests" {
    run grep -c FORGE_TEST_WRITABLE "$plain"
    [ "$output" = 0 ]
    run grep -c FORGE_TEST_WRITABLE "$FORGE"
    [ "$output" != 0 ]
}

@test "a run that changes nothing has succeeded, and nothing was changed" {
    inside 'cat guard/file guard/dir/two; ls -R guard; echo x >beside/new; echo x >"$OLDPWD/own"'
    unblamed
    [ "$(guard_field .mode)" = "$seen" ]
    [ "$by_others" -eq 0 ]
    [ "$(guard_field .unattributed)" -eq 0 ]
    [ "$(guard_field '.files | length')" -eq 0 ]
}

@test "a file written" {
    inside 'echo new >guard/file'
    caught guard/file modified
    [ "$(guard_field '.files | length')" -eq 1 ]
    [[ "$(field .completion_notes)" == *"1 guarded file was changed"*"$guard/file (modified)"* ]]
}

@test "a file appended to" {
    inside 'echo more >>guard/dir/two'
    caught guard/dir/two modified
}

@test "a file truncated by truncate(2)" {
    python 'os.truncate("guard/file", 1)'
    caught guard/file modified
}

@test "a file truncated by open(2), and nothing written" {
    inside ': >guard/file'
    caught guard/file modified
}

@test "a file overwritten in place with as many bytes, and its time restored" {
    python 's = os.stat("guard/file"); f = os.open("guard/file", os.O_WRONLY); os.write(f, b"ONE\n"); os.close(f)
os.utime("guard/file", ns=(s.st_atime_ns, s.st_mtime_ns))'
    caught guard/file modified "attributes changed"
}

@test "a file changed and changed back" {
    python 's = os.stat("guard/file"); old = open("guard/file").read()
open("guard/file", "w").write("x"); open("guard/file", "w").write(old)
os.utime("guard/file", ns=(s.st_atime_ns, s.st_mtime_ns))'
    [ "$(cat "$guard/file")" = one ]
    caught guard/file modified "attributes changed"
}

@test "a file created" {
    inside 'echo x >guard/dir/deep/new'
    caught guard/dir/deep/new created
}

@test "a file created and deleted again" {
    inside 'echo x >guard/dir/deep/new; rm guard/dir/deep/new'
    if [ "$seen" = watch ]; then
        caught guard/dir/deep/new created
    else
        caught guard/dir/deep "entries changed"
    fi
}

@test "a file deleted" {
    inside 'rm guard/dir/two'
    caught guard/dir/two deleted
}

@test "a file renamed within the guarded directory" {
    inside 'mv guard/file guard/dir/other'
    caught guard/file renamed deleted
    caught guard/dir/other renamed created
}

@test "a file moved out of it" {
    inside 'mv guard/file beside/file'
    caught guard/file renamed deleted
}

@test "a file moved into it" {
    inside 'echo x >beside/x; mv beside/x guard/x'
    caught guard/x renamed created
}

@test "a file replaced by another one" {
    inside 'echo x >beside/x; mv beside/x guard/file'
    caught guard/file renamed modified
}

@test "a directory made, and one removed" {
    inside 'mkdir guard/new; rm -r guard/dir/deep'
    caught guard/new created
    caught guard/dir/deep deleted
    caught guard/dir/deep/three deleted
}

@test "the whole directory removed, with all that is in it" {
    inside 'rm -r guard'
    caught guard deleted
    caught guard/dir/deep/three deleted
}

@test "the guarded directory replaced by a copy" {
    inside 'mv guard beside/old; cp -a beside/old guard'
    caught guard renamed modified
}

@test "a directory moved away, a file in it changed, and moved back" {
    inside 'mv guard/dir beside/dir; echo x >beside/dir/two; mv beside/dir guard/dir'
    if [ "$seen" = watch ]; then
        caught guard/dir renamed
    else
        caught guard/dir/two modified
    fi
}

@test "a hard link made to a guarded file" {
    inside 'ln guard/file beside/link'
    caught guard/file "attributes changed"
}

@test "a hard link that was there before: written by its other name" {
    ln "$guard/file" "$beside/other"
    inside 'echo x >beside/other'
    caught guard/file modified
}

@test "a hard link made, written through, and removed" {
    inside 'ln guard/file beside/link; echo x >beside/link; rm beside/link'
    blamed
    [ "$(guard_field '.files[0].path')" = "$guard/file" ]
}

@test "hard links in the workdir are no business of the guard" {
    inside 'cd "$OLDPWD"; echo x >a; for i in 1 2 3; do ln a b$i; done; echo y >>b2; rm a b1'
    unblamed
    [ "$(guard_field .unattributed)" -eq 0 ]
    # As many as one likes.
    forge_run -- /usr/bin/python3 -c 'import os
for i in range(4500): open("f%d" % i, "w"); os.link("f%d" % i, "l%d" % i)'
    unblamed
    [ "$(guard_field .mode)" = "$seen" ]
}

@test "modes, owners, times and extended attributes" {
    local change
    for change in 'os.chmod("guard/file", 0o600)' 'os.chown("guard/file", os.getuid(), os.getgid())' \
        'os.setxattr("guard/file", "user.x", b"1")'; do
        python "$change"
        caught guard/file "attributes changed"
    done
    python 'os.utime("guard/file", (1, 1))'
    caught guard/file "attributes changed" modified
    python 'os.chmod("guard/dir", 0o700)'
    caught guard/dir "attributes changed"
    python 'os.setxattr("guard/dir", "user.x", b"1")'
    caught guard/dir "attributes changed"
}

# write_mapped FILE: through a mapping, when the descriptor is closed.
write_mapped() {
    python "f = os.open('$1', os.O_RDWR); m = mmap.mmap(f, 3); os.close(f); m[0]; m[0:1] = b'X'; m.close()"
}

@test "a write through a mapping" {
    write_mapped guard/file
    [ "$(cat "$guard/file")" = Xne ]
    caught guard/file modified
}

@test "a write through a mapping on tmpfs, whose files have no times of that" {
    ram=$(mktemp -d "/dev/shm/guard-XXXXXX")
    printf one >"$ram/file"
    [ "$(stat -f -c %T "$ram")" = tmpfs ] || { rmdir "$ram"; skip "/dev/shm is no tmpfs"; }
    own "$ram"
    # A snapshot compares contents for that.
    guard_config "unattributed: auto" -- "health: {ram: {kind: files, paths: [$ram], hash: true}}"
    FORGE_TEST_WRITABLE=$rw:$ram write_mapped "$ram/file"
    content=$(cat "$ram/file")
    rm -r "$ram"
    [ "$content" = Xne ]
    blamed
    [ "$(guard_field '.files[0].path')" = "$ram/file" ]
    [ "$(guard_field '.files[0].what')" = "$([ "$seen" = watch ] && echo "opened for writing" || echo modified)" ]
}

@test "a file opened for writing, and not written, is not changed" {
    inside ': >>guard/file'
    unblamed
}

@test "a symbolic link replaced" {
    inside 'ln -sfn dir guard/link'
    blamed
    [ "$(guard_field '.files[] | select(.path == "'"$guard/link"'") | .by')" = "$by" ]
}

@test "a guarded path that is given through links: where they lead to, and the links" {
    mkdir "$rw/real"
    echo x >"$rw/real/data"
    ln -s ../real "$beside/second"
    ln -s "$beside/second" "$rw/first"
    own "$rw"
    guard_config "paths: [$rw/first]"
    inside 'echo y >real/data'
    caught real/data modified
    inside 'ln -sfn ../guard beside/second'
    blamed
    [ -n "$(guard_field '.files[] | select(.path == "'"$beside/second"'") | .path')" ]
    inside 'echo y >guard/file'
    caught guard/file modified
}

@test "a single guarded file, replaced as editors do" {
    guard_config "paths: [$guard/file]"
    inside 'cp guard/file guard/.file.swp; mv guard/.file.swp guard/file'
    caught guard/file renamed modified
    inside 'echo x >guard/dir/two; mv guard/dir guard/dir2'
    unblamed
}

@test "a single guarded file, deleted" {
    guard_config "paths: [$guard/file]"
    inside 'rm guard/file'
    caught guard/file deleted
}

@test "patterns: what matches is guarded, and nothing else" {
    guard_config "paths: ['$guard/**/*.csv', '$guard/di?/two']"
    inside 'echo x >guard/a.csv; echo x >guard/a.txt; echo x >guard/file'
    caught guard/a.csv created
    [ "$(guard_field '.files | length')" -eq 1 ]
    inside 'echo x >guard/dir/two'
    caught guard/dir/two modified
    inside 'mkdir -p guard/x/y; echo x >guard/x/y/b.csv; rm -r guard/x'
    [ "$seen" != watch ] || caught guard/x/y/b.csv created
    inside 'mv guard/dir guard/moved'
    caught guard/dir/two deleted deleted || caught guard/dir renamed
}

@test "what is excluded is not guarded" {
    guard_config "paths: [$guard]" "exclude: [$guard/dir, '$guard/**/*.log']"
    inside 'echo x >guard/dir/two; rm -r guard/dir/deep; echo x >guard/a.log; mkdir guard/dir/n'
    unblamed
    [ "$by_others" -eq 0 ]
    inside 'echo x >guard/file'
    caught guard/file modified
}

@test "what one check excludes, another one may guard" {
    guard_config "exclude: [$guard/dir]" "paths: [$guard]" -- "health: {two: {kind: files, paths: [$guard/dir/two]}}"
    inside 'echo x >guard/dir/two'
    caught guard/dir/two modified
    inside 'echo x >guard/dir/deep/three'
    unblamed
}

@test "a check that only warns: the verdict stays, and says so" {
    guard_config "mode: auto" -- "health: {soft: {kind: files, paths: [$guard], severity: warn}}"
    inside 'echo x >guard/file'
    told
    [ "$(field .status)" = succeeded ]
    [[ "$(field .completion_notes)" == *"$guard/file (modified)"* ]]
    # Many of those do not hide one of the others.
    guard_config "mode: auto" -- "health: {soft: {kind: files, paths: [$guard], severity: warn}, hard: {kind: files, paths: [$guard/file]}}"
    inside 'i=0; while [ $i -lt 300 ]; do : >guard/n$i; i=$((i + 1)); done; echo y >guard/file'
    caught guard/file modified
}

@test "a path that does not exist yet" {
    guard_config "paths: [$rw/none/such]"
    inside 'mkdir -p none/such; echo x >none/such/file'
    caught none/such created
    caught none/such/file created
}

@test "processes that are gone when their events are read" {
    [ "$seen" = watch ] || skip "only root can do this"
    inside 'for i in 1 2 3 4 5 6 7 8; do sh -c "echo $i >guard/a$i"; done
        (setsid sh -c "(echo x >guard/daemon) &" &)
        sh -c "sh -c \"sh -c \\\"sh -c \\\\\\\"sh -c \\\\\\\\\\\\\\\"echo x >guard/deep\\\\\\\\\\\\\\\"\\\\\\\"\\\"\""; true'
    blamed
    [ "$(guard_field .by_run)" -eq 10 ]
    [ "$(guard_field .unattributed)" -eq 0 ]
    [ "$(guard_field .by_others)" -eq 0 ]
    named_as guard/daemon created
    named_as guard/deep created
}

@test "... and also those of the run that starts the watcher" {
    [ "$seen" = watch ] || skip "only root can do this"
    for _ in 1 2 3; do
        for pid in $(watchers); do kill -KILL "$pid"; done
        wait_for no_watcher
        inside 'sh -c "sh -c \"echo x >guard/new\"; exit"; (echo x >guard/more)'
        blamed
        [ "$(guard_field .by_run)" -eq 2 ]
        rm "$guard/new" "$guard/more"
    done
}

@test "... also when those before them are gone, too" {
    [ "$seen" = watch ] || skip "only root can do this"
    # One of others, which is there before the watcher, and gone before it reads.
    mkfifo "$T/fifo"
    background sh -c "read -r _ <$T/fifo; sh -c 'echo x >$guard/theirs'; true"
    begin true 1 'sh -c "sh -c \"echo x >guard/new\"; exit"'
    init=$(pgrep -P "${pids[1]}" | while read -r child; do ! grep -qE "^NSpid:\s+[0-9]+\s+1\$" "/proc/$child/status" || echo "$child"; done)
    watcher=$(watchers)
    kill -STOP "$watcher"
    touch "$beside/go-1"
    is_gone() { [ ! -e "/proc/$init/status" ] || grep -q '^State:.Z' "/proc/$init/status"; }
    wait_for is_gone
    echo >"$T/fifo"
    wait "$pid"
    kill -CONT "$watcher"
    finish 1
    blamed
    [ "$(guard_field .by_run)" -eq 1 ]
    [ "$(guard_field .unattributed)" -eq 0 ]
    named_as guard/new created run
    named_as guard/theirs created other
}

@test "a directory above the guarded one moved away, and back" {
    mkdir -p "$rw/up/in"
    echo x >"$rw/up/in/file"
    own "$rw"
    guard_config "paths: [$rw/up/in]"
    [ "$seen" = snapshot ] || inside 'mv up beside/up; echo y >beside/up/in/file; mv beside/up up'
    [ "$seen" = snapshot ] || caught up renamed
    inside 'mv up away'
    blamed
    [ "$seen" = watch ] || named_as up/in/file deleted
}

@test "others change the same files during the run: noted, and nobody is blamed" {
    [ "$seen" = watch ] || skip "only root can do this"
    git init -q "$T/origin"
    git -C "$T/origin" -c user.name=x -c user.email=x commit -q --allow-empty -m 0
    git clone -q "$T/origin" "$guard/repo"
    for i in 1 2 3 4 5; do echo "$i" >"$T/origin/f$i"; done
    git -C "$T/origin" add .
    git -C "$T/origin" -c user.name=x -c user.email=x commit -q -m 1
    begin true
    git -C "$guard/repo" pull -q
    cp "$guard/file" "$guard/copy"
    sed -i s/t/T/ "$guard/dir/two"
    rm -r "$guard/dir/deep"
    (echo x >"$guard/file" &)
    chmod 600 "$guard/copy"
    finish
    unblamed
    [ "$by_others" -ge 8 ]
    [ "$(guard_field .unattributed)" -eq 0 ]
    named_as guard/repo/f3 created other
    named_as guard/dir/deep/three deleted other
    named_as guard/file modified other
    named_as guard/copy created other
}

@test "others and the run change files: each its own" {
    [ "$seen" = watch ] || skip "only root can do this"
    begin 'echo x >guard/mine'
    echo x >"$guard/theirs"
    echo x >"$guard/file"
    finish
    blamed
    [ "$(guard_field .by_run)" -eq 1 ]
    named_as guard/mine created
    named_as guard/theirs created other
    named_as guard/file modified other
}

@test "two runs at once: each is blamed for its own" {
    sed -i 's/uid_count: 1/uid_count: 8/' "$FORGE_CONFIG"
    chmod -R a+rwX "$rw"
    with=(--cpus 0.1 --memory 32M)
    begin true 1 'echo x >guard/of-1'
    begin true 2 'echo x >guard/of-2'
    begin true 3
    [ "$seen" = snapshot ] || [ "$(watchers | wc -l)" -eq 1 ]
    finish 1
    if [ "$seen" = snapshot ]; then
        # Nothing tells who did it, and it was not alone.
        unblamed
        [ "$(guard_field .unattributed)" -ge 1 ]
        [[ "$(field .completion_notes)" == *"by whom is not known"* ]]
        finish 2
        unblamed
        finish 3
        return
    fi
    blamed
    [ "$(guard_field .by_run)" -eq 1 ]
    named_as guard/of-1 created run
    id=$(field .run_id)
    finish 2
    blamed
    named_as guard/of-2 created run
    named_as guard/of-1 created other
    [ "$(guard_field '.files[] | select(.by == "other") | .process')" = "run $id" ]
    finish 3
    unblamed
    [ "$by_others" -eq 2 ]
}

@test "a run that was not alone is not blamed for what nobody saw; one that was, is" {
    guard_config "paths: [$guard]" "mode: snapshot"
    seen=snapshot by=unknown
    begin true 1
    echo x >"$guard/file"
    finish 1
    blamed
    # The other one ends before: that it was there is known all the same.
    sed -i 's/uid_count: 1/uid_count: 8/' "$FORGE_CONFIG"
    chmod -R a+rwX "$rw"
    with=(--cpus 0.1 --memory 32M)
    begin true 2
    begin true 3
    finish 2
    echo y >"$guard/file"
    finish 3
    unblamed
    [ "$(guard_field .unattributed)" -eq 1 ]
}

@test "guard.unattributed: corrupted and warn" {
    guard_config "paths: [$guard]" "mode: snapshot" "unattributed: warn"
    inside 'echo x >guard/file'
    unblamed
    [[ "$(field .completion_notes)" == *"$guard/file (modified)"* ]]
    guard_config "paths: [$guard]" "mode: snapshot" "unattributed: corrupted"
    inside 'echo y >guard/file'
    [ "$(field .status)" = corrupted ]
}

@test "guard.mode off: nothing is guarded" {
    guard_config "paths: [$guard]" "mode: off"
    inside 'echo x >guard/file'
    [ "$(field .status)" = succeeded ]
    [ "$(guard_field .mode)" = null ]
}

@test "guard.mode watch where nothing can be watched: the run is refused" {
    guard_config "paths: [$guard]" "mode: watch"
    if is_root; then
        guard_config "paths: [/proc/sys/kernel]" "mode: watch"
        inside true
        [[ "$(field .completion_notes)$(cat "$err")" == *"guarded files cannot be watched: "*proc* ]]
    else
        inside true
        [[ "$(field .completion_notes)$(cat "$err")" == *"guarded files cannot be watched: only root can watch files"* ]]
    fi
    [ "$status" -ne 0 ]
    [[ "$(cat "$err")$(field .completion_notes)$(field .hint)" == *"guard.mode: auto"* ]]
}

@test "guards that cannot be: clear errors" {
    guard_config "paths: [/]"
    run "$FORGE" run -- true
    [ "$status" -ne 0 ]
    [[ "$output" == *"guard.paths"*"/ is too much"* ]]
    guard_config "paths: [$T]" -- "workdir: $T/work/{id}"
    run "$FORGE" run -- true
    [ "$status" -ne 0 ]
    [[ "$output" == *"contains the workdirs of runs ($T/work)"* ]]
    # Nor through a link.
    ln -s "$T" "$beside/all"
    mkdir -m 700 "$T/work"
    guard_config "paths: [$beside/all]" -- "workdir: $T/work/{id}"
    run "$FORGE" run -- true
    [ "$status" -ne 0 ]
    [[ "$output" == *"it leads to $T, where forge works"* ]]
}

@test "a file system that cannot be watched is compared" {
    [ "$seen" = watch ] || skip "only root can do this"
    guard_config "paths: [$guard, /proc/sys/kernel/domainname]"
    inside 'echo x >guard/file'
    seen=both
    blamed
    named_as guard/file modified
    [[ "$(guard_field .note)" == */proc/sys/kernel/domainname* ]]
}

@test "patterns that include workdirs, and a FORGE_HOME that is guarded: what forge does never counts" {
    mkdir -m 700 "$T/work"
    guard_config "paths: ['$T/**/*', '$T/home']" "exclude: [$T/out, $T/err, $T/record.json]" -- "workdir: $T/work/{id}"
    echo x >"$T/in"
    forge_run -i "$T/in" -o '*' -- sh -c 'mkdir d; echo x >d/out; mv d e; ln e/out f; rm -r e; cat '"$T/in"
    unblamed
    [ "$by_others" -eq 0 ]
    [ "$(guard_field .unattributed)" -eq 0 ]
    inside 'echo x >guard/file'
    caught guard/file modified
}

@test "a FORGE_HOME that is reached through a link" {
    mkdir "$T/place"
    ln -s "$T/place" "$T/ln"
    export FORGE_HOME=$T/ln/home
    guard_config "paths: [$T/place]"
    forge_run -- true
    unblamed
    [ "$by_others" -eq 0 ]
    [ "$(guard_field .unattributed)" -eq 0 ]
}

@test "outputs that forge copies into a guarded directory" {
    forge_run -o out --copy "$guard/results" -- sh -c 'echo x >out'
    unblamed
    [ -e "$guard/results/out" ]
    begin true
    "$FORGE" run -q -o out --copy "$guard/more" -- sh -c 'echo x >out' || true
    finish
    unblamed
}
