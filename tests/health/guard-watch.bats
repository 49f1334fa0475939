#!/usr/bin/env bats
# The process that watches guarded files: shared by all runs, gone with the last one; killed, stopped and flooded.
# SPDX-License-Identifier: Apache-2.0

setup() {
    . "$BATS_TEST_DIRNAME/../lib/guard.bash"
    with=() pids=()
    setup_guard
}
teardown() {
    ! mountpoint -q "$rw/other" || umount "$rw/other"
    teardown_guard
}

needs_watch() { skip_unless "only root can do this" is_root; }

# count_is N: so many watchers.
count_is() { [ "$(watchers | wc -l)" -eq "$1" ]; }

# lost STATUS: the verdict says that the watch was lost, and is this one.
lost() {
    told
    [ "$(field .status)" = "$1" ]
    [ "$(guard_field .mode)" = times ]
    [[ "$(field .completion_notes)" == *"${2:-the watch was lost}"* ]]
}

@test "the watcher ends by itself, and the next run starts another one" {
    needs_watch
    inside true
    unblamed
    count_is 1
    first=$(watchers)
    wait_for no_watcher
    [ ! -e "$FORGE_HOME/guard/socket" ]
    inside 'echo x >guard/file'
    blamed
    count_is 1
    [ "$(watchers)" != "$first" ]
}

@test "50 runs at once have one watcher" {
    needs_watch
    guard_config "paths: [$guard]" -- "host: {budget: {runs: 60}}"
    sed -i 's/uid_count: 1/uid_count: 60/' "$FORGE_CONFIG"
    chmod -R a+rwX "$rw"
    with=(--cpus 0.03 --memory 16M)
    for i in {1..50}; do
        "$FORGE" run --json "${with[@]}" -- sh -c "cd $rw; touch beside/began-$i; until [ -e beside/go ]; do sleep 0.2; done
            [ $((i % 10)) -ne 0 ] || echo x >guard/of-$i" >"$T/record-$i" 2>"$T/err-$i" </dev/null 3>&- &
        started+=($!)
        pids[i]=$!
    done
    all_began() { [ "$(find "$beside" -name 'began-*' | wc -l)" -eq 50 ]; }
    wait_for all_began || wait_for all_began || wait_for all_began
    count_is 1
    touch "$beside/go"
    for i in {1..50}; do
        status=0
        wait "${pids[i]}" || status=$?
        record=$T/record-$i
        if [ $((i % 10)) -eq 0 ]; then
            blamed
            [ "$(guard_field .by_run)" -eq 1 ]
            named_as "guard/of-$i" created run
        else
            unblamed
        fi
    done
    wait_for no_watcher
}

@test "killed during a run: the times of the files decide" {
    needs_watch
    guard_config "paths: [$guard]" "unattributed: corrupted"
    begin true 1 'echo x >guard/file'
    kill -KILL "$(watchers)"
    finish 1
    lost corrupted
    named_as guard/file modified unknown
    # ... and what was deleted is missed, and what came, too.
    begin 'rm guard/dir/two; mkdir guard/new' 2
    kill -KILL "$(watchers)"
    finish 2
    lost corrupted
    named_as guard/dir "entries changed" unknown
    named_as guard/new created unknown
    # Nothing changed: the verdict stands, and says on what it rests.
    begin true 3
    kill -KILL "$(watchers)"
    finish 3
    lost succeeded
    # The next one has a watcher again.
    inside true
    unblamed
    [ "$(guard_field .mode)" = watch ]
}

@test "killed, and a guarded file was deleted, or an old one put in its place" {
    needs_watch
    guard_config "paths: [$guard/file, $guard/dir]" "unattributed: corrupted"
    begin 'rm guard/file' 1
    kill -KILL "$(watchers)"
    finish 1
    lost corrupted
    named_as guard/file deleted unknown
    mkdir -p "$beside/old"
    echo old >"$guard/file"
    own "$rw"
    begin 'mv guard/dir beside/away; mv beside/old guard/dir' 2
    kill -KILL "$(watchers)"
    finish 2
    lost corrupted
    named_as guard/dir modified unknown
}

@test "killed, and a file of a pattern was deleted, alone or with its directory" {
    needs_watch
    guard_config "paths: ['$guard/*.csv', '$guard/dir/*/thr*', '$beside/sub/*.csv']" "unattributed: corrupted"
    mkdir "$beside/sub"
    touch "$guard/a.csv" "$guard/b.csv" "$beside/sub/c.csv"
    own "$rw"
    begin 'rm guard/a.csv' 1
    kill -KILL "$(watchers)"
    finish 1
    lost corrupted
    named_as guard "entries changed" unknown
    # The time of the directory was set back.
    begin 'touch -r guard beside/ref; rm guard/b.csv; touch -r beside/ref guard' 2
    kill -KILL "$(watchers)"
    finish 2
    lost corrupted
    named_as guard "entries changed" unknown
    begin 'rm -r guard/dir/deep' 3
    kill -KILL "$(watchers)"
    finish 3
    lost corrupted
    named_as guard/dir "entries changed" unknown
    begin 'mv beside/sub beside/away' 4
    kill -KILL "$(watchers)"
    finish 4
    lost corrupted
    named_as beside/sub deleted unknown
    # Nothing of them changed: what is written beside them, or in files that were there before, is no change.
    mv "$beside/away" "$beside/sub"
    echo x >"$guard/other"
    own "$rw"
    begin 'echo y >>guard/other; touch beside/unrelated' 5
    kill -KILL "$(watchers)"
    finish 5
    lost succeeded
    [ "$(guard_field .unattributed)" -eq 0 ]
}

@test "killed, and workdirs are made where the files of a pattern are: nothing is taken for a deletion" {
    needs_watch
    mkdir "$T/work"
    guard_config "paths: ['$T/work/*.csv']" "unattributed: corrupted" -- "workdir: $T/work/run-{id}"
    begin true 1
    kill -KILL "$(watchers)"
    finish 1
    lost succeeded
}

@test "killed at any time, also when a run begins: no hang, no wrong verdict" {
    needs_watch
    guard_config "paths: [$guard]" "unattributed: corrupted"
    modes=
    for round in {1..36}; do
        changes=$((round % 3 != 0))
        (
            # Some before the command, some during it, some at the end.
            deadline=$((SECONDS + 20))
            until [ -n "$(watchers)" ] || [ "$SECONDS" -ge "$deadline" ]; do :; done
            pause "0.0$((RANDOM % 100))"
            for pid in $(watchers); do kill -KILL "$pid" 2>/dev/null || true; done
        ) 3>&- &
        killer=$!
        status=0
        timeout 60 "$FORGE" run --json -- sh -c "[ $changes -eq 0 ] || echo $round >>$guard/file; sleep 0.0$((RANDOM % 10))" \
            >"$record" 2>"$err" </dev/null 3>&- || status=$?
        wait "$killer"
        told
        modes+=" $(guard_field .mode)"
        if [ "$changes" -eq 1 ]; then
            [ "$(field .status)" = corrupted ]
            [ -n "$(guard_field ".files[] | select(.path == \"$guard/file\") | .path")" ]
        else
            [ "$(field .status)" = succeeded ]
        fi
        [ "$(guard_field .mode)" != times ] || [[ "$(field .completion_notes)" == *"the watch was lost"* ]]
    done
    echo "$modes"
    # Both cases were there.
    [[ "$modes" == *times* ]]
    [[ "$modes" == *watch* ]]
}

@test "killed, with others at work: not alone, only a warning" {
    needs_watch
    sed -i 's/uid_count: 1/uid_count: 8/' "$FORGE_CONFIG"
    chmod -R a+rwX "$rw"
    with=(--cpus 0.1 --memory 32M)
    begin true 1
    begin 'echo x >guard/file' 2
    kill -KILL "$(watchers)"
    finish 2
    lost succeeded
    named_as guard/file modified unknown
    finish 1
    lost succeeded
}

@test "more changes than the queue has room for: the times of the files decide" {
    needs_watch
    most=$(cat /proc/sys/fs/fanotify/max_queued_events)
    [ "$most" -le 100000 ] || skip "the queue has room for $most events"
    mkdir "$beside/many"
    own "$rw"
    begin 'echo x >guard/early' 1 \
        "python3 -c 'for i in range($most + 100): open(\"beside/many/%d\" % i, \"w\")'; echo y >guard/file; : >beside/done-1
        until [ -e beside/end ]; do sleep 0.01; done"
    # What was seen before stays attributed.
    seen_early() { [ "$(find "$guard/early" | wc -l)" -eq 1 ]; }
    wait_for seen_early
    pid=$(watchers)
    pause 0.1
    kill -STOP "$pid"
    touch "$beside/go-1"
    wait_for test -e "$beside/done-1"
    kill -CONT "$pid"
    touch "$beside/end"
    finish 1
    lost corrupted "more changes than could be watched"
    [ -n "$(guard_field ".files[] | select(.path == \"$guard/file\") | .path")" ]
    named_as guard/early created run
    # It goes on: the next run is watched.
    inside 'echo z >guard/file'
    blamed
}

@test "a supervisor that is killed leaves nothing in the watcher" {
    needs_watch
    begin true 1
    pid=$(watchers)
    ls "/proc/$pid/fd" | wc -l >"$T/fds"
    kill -KILL "${pids[1]}"
    wait "${pids[1]}" 2>/dev/null || true
    fewer() { [ "$(ls "/proc/$pid/fd" | wc -l)" -lt "$(cat "$T/fds")" ]; }
    wait_for fewer
    wait_for no_watcher
    started=()
    "$FORGE" gc
}

# tree N: so many guarded files.
tree() {
    python3 - "$guard/tree" "$1" <<'X'
import os, sys
for i in range(int(sys.argv[2])):
    if i % 1000 == 0:
        os.makedirs(f"{sys.argv[1]}/{i // 1000}", exist_ok=True)
    os.close(os.open(f"{sys.argv[1]}/{i // 1000}/{i}", os.O_CREAT | os.O_WRONLY))
X
}

# began_in: milliseconds that a run of nothing takes; the least of some.
began_in() {
    local least=999999 took began
    for _ in {1..10}; do
        began=$(now_ms)
        "$FORGE" run -q -- true
        took=$(($(now_ms) - began))
        [ "$took" -ge "$least" ] || least=$took
    done
    echo "$least"
}

@test "100,000 guarded files: a watch costs as much as for 10, a snapshot finds the one" {
    few=$(began_in)
    tree 100000
    own "$guard/tree"
    many=$(began_in)
    echo "10 files: $few ms, 100,000: $many ms"
    [ "$seen" = snapshot ] || [ "$many" -lt $((2 * few + 20)) ]
    inside 'echo x >guard/tree/77/77123'
    caught guard/tree/77/77123 modified
    [ "$(guard_field '.files | length')" -eq 1 ]
    guard_config "paths: [$guard]" "mode: snapshot"
    seen=snapshot by=unknown
    inside 'rm guard/tree/5/5005'
    caught guard/tree/5/5005 deleted
    rm -r "$guard/tree"
}

@test "a mount of the same file system: files are found by the path that is guarded" {
    needs_watch
    mkdir "$T/other"
    mount --bind "$rw/beside" "$T/other"
    guard_config "paths: [$T/other, $guard]"
    status=0
    forge_run -- sh -c "cd $rw; echo x >beside/new; mkdir beside/d; echo x >beside/d/f; rm -r beside/d"
    umount "$T/other"
    told
    [ "$(field .status)" = corrupted ]
    [ -n "$(guard_field ".files[] | select(.path == \"$T/other/new\" and .by == \"run\") | .path")" ]
    [ -n "$(guard_field ".files[] | select(.path == \"$T/other/d/f\" and .by == \"run\") | .path")" ]
}

# marks: directories in which names are not reported, of which the watcher has marks of its own.
marks() { cat "/proc/$(watchers)/fdinfo/"* 2>/dev/null | grep -c '^fanotify ino:.*ignored_mask:300 ' || true; }
quiet() {
    marks=$(marks)
    echo "$marks marks"
    [ "$marks" -ge 1 ]
}
none_is_quiet() { ! quiet; }

@test "names in a workdir are not reported any more; what leaves it as a directory is" {
    needs_watch
    begin 'mkdir ~/sub; for i in 1 2 3; do : >~/sub/$i; done; echo ~ >beside/home' 1 \
        'until [ -e beside/moved ]; do sleep 0.01; done; ln guard/file beside/alias; echo x >>beside/alias'
    wait_for quiet
    workdir=$(cat "$beside/home")
    [ -e "$workdir/work/sub/1" ]
    # Another program moves the directory to where files are guarded, and works there.
    mv "$workdir/work/sub" "$guard/sub"
    wait_for none_is_quiet
    : >"$guard/sub/new"
    rm "$guard/sub/2"
    touch "$beside/moved"
    finish 1
    [ "$(field .status)" = corrupted ]
    named_as guard/sub renamed other
    named_as guard/sub/new created other
    named_as guard/sub/2 deleted other
    # Another name for a guarded file is seen as before.
    named_as guard/file "attributes changed" run
}

@test "health check says when the workdirs share a file system with guarded files" {
    guard_config "paths: [$guard]" -- "workdir: $T/work/{run_id}"
    run "$FORGE" health check
    [ "$status" -eq 0 ]
    if is_root; then
        [[ "$output" == *"The workdirs are on the same file system"*"forge setup --workdir-quota"* ]]
    else
        [[ "$output" != *"The workdirs are on"* ]] # nothing is watched
    fi
    [ "$(stat -c %d /proc)" -ne "$(stat -c %d "$guard")" ]
    guard_config "paths: [$guard]" -- "workdir: /proc/{run_id}"
    run "$FORGE" health check
    [[ "$output" == *"guarded: "* ]]
    [[ "$output" != *"The workdirs are on"* ]]
}

# several PATH: several runs at once, each with a uid of its own, when PATH is guarded.
several() {
    guard_config "paths: [$1]"
    sed -i 's/uid_count: 1/uid_count: 20/' "$FORGE_CONFIG"
    chmod -R a+rwX "$rw"
    with=(--cpus 0.1 --memory 32M)
}

@test "what was quiet in a workdir that is kept is not quiet when that run is over" {
    needs_watch
    several "$guard"
    begin true 2 'rm guard/sub/2'
    "$FORGE" run --json "${with[@]}" --keep -- sh -c 'mkdir -m 777 sub; for i in 1 2 3; do : >sub/$i; sleep 0.05; done' >"$T/kept.json" </dev/null 2>&1
    kept=$(jq -r .path "$FORGE_HOME"/runs/*/kept.json)
    mv "$kept/sub" "$guard/sub"
    wait_for none_is_quiet
    finish 2
    [ ! -e "$guard/sub/2" ]
    named_as guard/sub/2 deleted run
}

@test "a quiet directory whose rename is understood only later is reported in full" {
    needs_watch
    several "$guard"
    begin 'mkdir -p ~/p/sub; chmod 777 ~/p ~/p/sub; for i in 1 2 3; do : >~/p/sub/$i; sleep 0.02; done; echo ~ >beside/home' 1
    begin true 2 'rm guard/sub/2'
    workdir=$(cat "$beside/home")
    : >"$workdir/work/p/sub/5"
    wait_for quiet
    # The watcher forgets the paths that it knows, and where the directory was is gone before it reads the rename.
    mkdir "$beside/x"
    rmdir "$beside/x"
    python3 -c 'import os,sys; os.rename(sys.argv[1]+"/sub", sys.argv[2]); os.rmdir(sys.argv[1])' "$workdir/work/p" "$guard/sub"
    wait_for none_is_quiet
    finish 2
    [ ! -e "$guard/sub/2" ]
    named_as guard/sub/2 deleted run
    finish 1
}

@test "a directory of a workdir that is guarded by another mount is never quiet" {
    needs_watch
    several "$guard"
    begin 'mkdir -p ~/sub ~/plain; chmod 777 ~/sub ~/plain; : >~/sub/0; echo ~ >beside/home' 1
    workdir=$(cat "$beside/home")
    mkdir "$rw/other"
    mount --bind "$workdir/work/sub" "$rw/other"
    several "$rw/other"
    begin true 2
    : >"$workdir/work/sub/1"
    # When this one is quiet, what came before it has been read.
    : >"$workdir/work/plain/1"
    wait_for quiet
    [ "$marks" = 1 ]
    rm "$workdir/work/sub/0"
    finish 2
    umount "$rw/other"
    named_as other/0 deleted other
    named_as other/1 created other
    finish 1
}
