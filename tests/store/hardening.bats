#!/usr/bin/env bats
# What a store says is data: whoever writes a team's database must not make us open, show or remove
# anything. And errors that must not be taken for absence.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash
setup() { setup_store; }
teardown() {
    rm -rf "$work/scidex-analysis-kept-$$"
    teardown_store
}

# sql STATEMENT: in this test's store, as another of its users could.
sql() {
    if [ "${FORGE_TEST_STORE:-sqlite}" = postgres ]; then
        pg_sql "$1" "$database"
    else
        /usr/bin/env python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for row in db.execute(sys.argv[2]):
    print("|".join("" if c is None else str(c) for c in row))
db.commit()' "$FORGE_HOME/forge.db" "$1"
    fi
}

# poison RUN FILTER [STATUS]: changes its row by a jq filter.
poison() {
    local text
    text=$(sql "SELECT record FROM runs WHERE run_id = '$1'" | jq -c "$2" | sed "s/'/''/g")
    sql "UPDATE runs SET record = '$text'${3:+, status = '$3'} WHERE run_id = '$1'"
}

# victim: a directory that no run has to do with. $evil makes a record point to it.
victim() {
    mkdir "$T/victim"
    echo precious >"$T/victim/file"
    # shellcheck disable=SC2046,SC2183 # two numbers
    evil=$(printf '.workdir = "%s" | .workdir_kept = true | .workdir_identity = [%s, %s]' \
        "$T/victim" $(stat -c '%d %i' "$T/victim"))
}

long_ago() { touch -d '-100 days' "$FORGE_HOME"/runs/*/record.json; }

# forge COMMAND...: must not wait for anything.
forge() { timeout 20 "$FORGE" "$@"; }

# ---- what comes from a store

@test "a record restored from the store makes gc remove nothing" {
    forge_run -- true
    id=$(field .run_id)
    victim
    poison "$id" "$evil"
    : >"$FORGE_HOME/runs/$id/record.json"
    run forge gc
    [ "$status" -eq 0 ]
    [ "$(jq -r .status "$FORGE_HOME/runs/$id/record.json")" = succeeded ]
    long_ago
    run forge gc
    [ "$status" -eq 0 ]
    [ "$(cat victim/file)" = precious ]
    [ "$(jq -r .workdir_kept "$FORGE_HOME/runs/$id/record.json")" != true ]
}

@test "a verdict that the store had first makes gc remove nothing" {
    forge_run -- true
    id=$(field .run_id)
    victim
    poison "$id" "$evil | .status = \"lost\" | .run_id = \"../../../x\"" lost
    printf %s "${FORGE_STORE:-sqlite:$FORGE_HOME/forge.db}" >"$FORGE_HOME/undelivered/$id" 2>/dev/null ||
        { mkdir -m 700 "$FORGE_HOME/undelivered"
          printf %s "${FORGE_STORE:-sqlite:$FORGE_HOME/forge.db}" >"$FORGE_HOME/undelivered/$id"; }
    forge gc
    [ "$(jq -r .status "$FORGE_HOME/runs/$id/record.json")" = lost ]
    [ "$(jq -r .run_id "$FORGE_HOME/runs/$id/record.json")" = "$id" ]
    long_ago
    forge gc
    [ "$(cat victim/file)" = precious ]
}

@test "a kept workdir is still removed in its time after the store's verdict was taken over" {
    forge_run --keep --id "kept-$$" -- touch file
    id=$(field .run_id)
    poison "$id" '.status = "lost" | del(.workdir_kept, .workdir_identity, .workdir)' lost
    : >"$FORGE_HOME/runs/$id/record.json"
    forge gc
    [ "$(jq -r .status "$FORGE_HOME/runs/$id/record.json")" = lost ]
    [ -e "$work/scidex-analysis-kept-$$/file" ]
    long_ago
    forge gc
    [ ! -e "$work/scidex-analysis-kept-$$" ]
}

@test "logs are read from our own directory, not where the store says" {
    forge_run -- echo mine
    id=$(field .run_id)
    echo secret >secret
    poison "$id" ".logs.stdout = \"$T/secret\" | .logs.stderr = \"$T/secret\" | .run_id = \"../../../..$T\""
    run forge logs "$id"
    [ "$status" -eq 0 ]
    [ "$output" = mine ]
    # A fifo in its place, by whatever accident, is not waited for either.
    rm "$FORGE_HOME/runs/$id/stdout"
    mkfifo "$FORGE_HOME/runs/$id/stdout"
    run forge logs "$id"
    [ "$status" -eq 1 ]
    [[ "$output" != *secret* ]]
    rm "$FORGE_HOME/runs/$id/stdout"
}

@test "a row of ours that points to fifos holds up neither ps nor gc" {
    forge_run -- true
    id=$(field .run_id)
    other=01k00000000000000000000000
    mkdir -p fifos/runs/$other fifos/active
    mkfifo fifos/runs/$other/record.json fifos/runs/$other/events.jsonl
    text=$(sql "SELECT record FROM runs WHERE run_id = '$id'" | jq -c ".run_id = \"$other\" |
        .status = \"running\" | .logs.events = \"$T/fifos/runs/$other/events.jsonl\" |
        .supervisor.home = \"$T/fifos\" | .supervisor.pid = 999999999" | sed "s/'/''/g")
    sql "INSERT INTO runs (run_id, analysis_id, status, host, username, created_at, pid, record)
         SELECT '$other', analysis_id, 'running', host, username, created_at, 999999999, '$text'
         FROM runs WHERE run_id = '$id'"
    run forge ps -a
    [ "$status" -eq 0 ]
    run forge gc
    [ "$status" -eq 0 ]
    # Its own directory as well, should somebody put one there.
    rm "$FORGE_HOME/runs/$id/record.json"
    mkfifo "$FORGE_HOME/runs/$id/record.json"
    run forge show "$id"
    [ "$status" -ne 124 ]
    run forge gc
    [ "$status" -eq 1 ]
    rm "$FORGE_HOME/runs/$id/record.json"
}

@test "ids of rows that are no ids of runs lead nowhere" {
    forge_run -- true
    id=$(field .run_id)
    mkdir -p "$T/outside"
    echo '{"status": "running"}' >"$T/outside/record.json"
    sql "INSERT INTO runs (run_id, analysis_id, status, host, username, created_at, pid, record)
         SELECT '../../outside', analysis_id, 'running', host, username, created_at, 999999999, '{}'
         FROM runs WHERE run_id = '$id'"
    run forge gc
    [ "$(cat "$T/outside/record.json")" = '{"status": "running"}' ]
    [ "$(ls "$T/outside")" = record.json ]
}

@test "a command or an input that only the store knows of is not run, and not shown" {
    echo 'echo "{\"ours\": 1}"' >post.sh
    forge_run -o x --post-process 'echo "{\"ours\": 1}"' -- sh -c 'echo out >x'
    id=$(field .run_id)
    mkdir -m 700 root-only
    echo secret >root-only/file
    chmod 755 root-only
    poison "$id" ".post_process.command = [\"sh\", \"-c\", \"touch $T/ran; cat $T/root-only/file >&2; echo {}\"] |
        .inputs = [{\"path\": \"$T/root-only/file\"}]"
    : >"$FORGE_HOME/runs/$id/record.json"
    forge gc
    run forge post-process "$id"
    [ "$status" -ne 0 ]
    [[ "$output" == *"restored from the store"* ]]
    # Named by the user it is run, with what is ours.
    run forge post-process --command 'ls; echo "{\"again\": 1}"' "$id"
    [[ "$output" != *root-only* ]]
}

@test "an output of another's record is listed by its digest, wherever the row says it lies" {
    forge_run -o x -- sh -c 'echo out >x'
    id=$(field .run_id)
    echo secret >secret
    poison "$id" '.outputs[0].stored_as = "../secret"'
    run forge outputs "$id"
    [ "$status" -eq 0 ]
    [[ "$output" != *secret* ]]
    [[ "$output" == *"$FORGE_HOME/objects/"* ]]
}

# ---- cleaning goes on

@test "a workdir full of the names that deep directories are moved to is removed" {
    cat >fill.py <<'EOS'
import os
top = os.getcwd()
for i in range(400):
    os.makedirs(f".forge-removing-{i}/x")
# Whichever comes first, some of these are met before some of those.
for i in range(40):
    os.chdir(top)
    for j in range(80):
        os.mkdir(f"d{i}")
        os.chdir(f"d{i}")
EOS
    forge_run -i fill.py -- python3 "$T/fill.py"
    [ "$(field .status)" = succeeded ]
    [ "$(field .cleanup_error)" = null ]
    [ ! -e "$work/scidex-analysis-$(field .run_id)" ]
    nothing_active
}

@test "gc does the rest when there is something that it cannot do, and then says so" {
    forge_run --keep --id "kept-$$" -- touch file
    # Neither of these slots can be read; a workdir and a record could be in them.
    truncate -s 2G "$FORGE_HOME/active/97"
    mkfifo "$FORGE_HOME/active/98"
    mkdir "$FORGE_HOME/active/99"
    touch "$FORGE_HOME/active/99/x"
    long_ago
    run forge gc
    [ "$status" -eq 1 ]
    [[ "$output" == *"remove workdir $work/scidex-analysis-kept-$$"* ]]
    [[ "$output" == *"not done: "*"not done: "* ]]
    [ ! -e "$work/scidex-analysis-kept-$$" ]
    [ "$(stat -c %s "$FORGE_HOME/active/97")" -eq 2147483648 ]
    rm -r "$FORGE_HOME/active/97" "$FORGE_HOME/active/98" "$FORGE_HOME/active/99"
    run forge gc
    [ "$status" -eq 0 ]
}

@test "a slot of more than 64 MiB is repaired like any other" {
    start
    a=$id
    workdir=$work/scidex-analysis-$a
    murder "$a"
    slot=$(find "$FORGE_HOME/active" -type f -size +0)
    # As a very long command line makes it: the last line again, with much in it.
    /usr/bin/env python3 -c 'import json, sys
facts = {}
for line in open(sys.argv[1]):
    facts.update(json.loads(line))
facts["record"]["command"] = ["x" * (70 << 20)]
open(sys.argv[1], "a").write(json.dumps(facts) + "\n")' "$slot"
    [ -d "$workdir" ]
    run forge gc
    [ "$status" -eq 0 ]
    [ ! -e "$workdir" ]
    for dir in "${cgroup_dirs[@]}"; do
        [ ! -e "$dir/forge-$a" ]
    done
    [ "$(of "$a" .status)" = lost ]
}

# ---- errors are not absence

# failing_gc CALL:ERROR PATH: gc with strace, which makes that call on the path fail.
failing_gc() { traced -e "inject=$1" -P "$2" "$FORGE" gc; }
# traced OPTION... COMMAND...: with strace; leaks cannot be looked for under it.
traced() { ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} strace -f -qq -o /dev/null "$@"; }

@test "a record that cannot be read is neither closed nor replaced, and its objects stay" {
    skip_unless "strace cannot trace here" strace -qq -o /dev/null true
    budget 'retention:' '  objects: 1ms'
    forge_run -o x -- sh -c 'echo out >x'
    id=$(field .run_id)
    dir=$FORGE_HOME/runs/$id
    # The store knows nothing of it, as after a crash.
    for table in outputs inputs run_events; do
        sql "DELETE FROM $table WHERE run_id = '$id'"
    done
    poison "$id" '.status = "running" | .outputs = [] | .supervisor.pid = 999999999' running
    sql "UPDATE runs SET pid = 999999999 WHERE run_id = '$id'"
    before=$(cat "$dir/record.json")
    pause 2.1
    for fault in openat:error=EMFILE openat:error=EIO openat:error=ENOMEM pread64:error=EIO; do
        path=record.json
        [[ "$fault" == openat* ]] || path=$dir/record.json
        run failing_gc "$fault:when=1+" "$path"
        echo "$output"
        [ "$status" -eq 1 ]
        [ "$(cat "$dir/record.json")" = "$before" ]
        [ "$(objects | wc -l)" -eq 1 ]
        [ "$(sql "SELECT status FROM runs WHERE run_id = '$id'")" = running ]
    done
    # And with the record in reach it is told as it was.
    "$FORGE" gc
    [ "$(of "$id" .status)" = succeeded ]
    [ "$(objects | wc -l)" -eq 1 ]
}

@test "a directory that cannot be listed to its end makes gc remove no objects" {
    skip_unless "strace cannot trace here" strace -qq -o /dev/null true
    budget 'retention:' '  objects: 1ms'
    forge_run -o x -- sh -c 'echo out >x'
    sql "DELETE FROM outputs"
    pause 2.1
    run failing_gc "getdents64:error=EIO:when=1+" "$FORGE_HOME/runs"
    echo "$output"
    [ "$status" -eq 1 ]
    [ "$(objects | wc -l)" -eq 1 ]
}

# ---- objects are ours alone

# Takes a descriptor from a run, by a socket in one of its inputs, and writes to it when told so.
accomplice() {
    cat >accomplice.py <<'EOS'
import array, os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind("in/socket")
os.chmod("in/socket", 0o777)
s.listen(1)
open("listening", "w")
c = s.accept()[0]
_, parts, _, _ = c.recvmsg(1, socket.CMSG_SPACE(4))
fd = array.array("i", parts[0][2])[0]
if sys.argv[1] == "map":
    import mmap
    m = mmap.mmap(fd, 4096)
    os.close(fd)
c.send(b"x")
while not os.path.exists("strike"):
    time.sleep(0.02)
if sys.argv[1] == "map":
    m[0:4] = b"EVIL"
else:
    os.pwrite(fd, b"EVIL", 0)
open("struck", "w")
EOS
    cat >give.py <<'EOS'
import array, os, socket, sys
f = open("x", "w+b")
f.write(b"good" * 1024)
f.flush()
c = socket.socket(socket.AF_UNIX)
c.connect(sys.argv[1])
c.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [f.fileno()]))])
c.recv(1)
EOS
    mkdir -p in
    background /usr/bin/python3 accomplice.py "$1"
    patiently test -e listening
}

@test "an output that somebody else can still write is copied, not adopted" {
    for way in write map; do
        rm -f strike struck listening in/socket
        accomplice "$way"
        forge_run -i in -i give.py -o x -- python3 "$T/give.py" "$T/in/socket"
        [ "$(field .status)" = succeeded ]
        touch strike
        patiently test -e struck
        # An innocent run with the same content has what it made, and so does the first.
        for id in "$(field .run_id)" "$(forge_run -o x -- sh -c 'for i in $(seq 1024); do printf good; done >x' >/dev/null; field .run_id)"; do
            rm -rf got
            run forge outputs --copy got "$id"
            [ "$status" -eq 0 ]
            [ "$(head -c 4 got/x)" = good ]
        done
    done
}

@test "a damaged object is handed to no post-process" {
    forge_run -o x -- sh -c 'echo good >x'
    id=$(field .run_id)
    object=$(objects)
    chmod 600 "$object"
    echo evil >"$object"
    chmod 444 "$object"
    run forge post-process --command 'cat x >&2; echo "{}"' "$id"
    [ "$status" -eq 1 ]
    [[ "$output" == *"output x is damaged"* ]]
}

@test "a byte and the text that it is written as are two outputs" {
    forge_run --post-process 'ls outputs | wc -l >&2; echo "{}"' -- python3 -c '
import os
os.mkdir("outputs")
for name in [b"\xff", b"\\xff", b"\\\\xff", b"back\\slash"]:
    open(b"outputs/" + name, "wb").write(name)'
    [ "$(field .post_process.status)" = succeeded ]
    [ "$(field '[.outputs[].path] | unique | length')" -eq 4 ]
    id=$(field .run_id)
    [ "$(sql "SELECT count(*) FROM outputs WHERE run_id = '$id'")" -eq 4 ]
    forge outputs --copy got "$id"
    [ "$(find got/outputs -type f -printf x | wc -c)" -eq 4 ]
    [ "$(od -An -tx1 $'got/outputs/\xff')" = " ff" ]
    [ "$(cat 'got/outputs/\xff')" = '\xff' ]
    [ "$(cat 'got/outputs/\\xff')" = '\\xff' ]
    [ "$(cat 'got/outputs/back\slash')" = 'back\slash' ]
}

# ---- digests of inputs

@test "a digest is of the file as it is, also when somebody has it mapped" {
    cat >mapped.py <<'EOS'
import mmap, os, time
f = open("big", "w+b")
f.truncate(2 << 20)
m = mmap.mmap(f.fileno(), 2 << 20)
m[0:4] = b"one "
f.close()
open("made", "w")
for n in range(1, 11):
    while not os.path.exists("again%d" % n):
        time.sleep(0.02)
    m[0:4] = b"%04d" % n
    open("done%d" % n, "w")
time.sleep(60)
EOS
    background /usr/bin/python3 mapped.py
    patiently test -e made
    # What changed a moment ago is not remembered in any case.
    pause 2.2
    # Whoever syncs the disk meanwhile makes the next write to the mapping change the times: then once more.
    for n in $(seq 10); do
        forge_run -i big -- true
        [ "$(field '.inputs[0].sha256')" = "sha256:$(sha256sum <big | cut -d' ' -f1)" ]
        times=$(stat -c '%y %z' big)
        touch "again$n"
        patiently test -e "done$n"
        [ "$(stat -c '%y %z' big)" != "$times" ] || break
    done
    # Without this, the test would show nothing.
    [ "$(stat -c '%y %z' big)" = "$times" ]
    forge_run -i big -- true
    [ "$(field '.inputs[0].sha256')" = "sha256:$(sha256sum <big | cut -d' ' -f1)" ]
}

@test "a digest of a file that nobody writes is remembered" {
    head -c 2M /dev/urandom >big
    pause 2.2
    forge_run -i big -- true
    [ "$(find "$FORGE_HOME/cache" -type f | wc -l)" -eq 1 ]
}

@test "a directory that is swapped for a link does not lead the hasher away" {
    mkdir tree tree/sub secret
    echo public >tree/sub/file
    echo secret >secret/file
    digest() { forge_run -i tree -- true >/dev/null; field '.inputs[0].sha256'; }
    cat >swap.py <<'EOS'
import ctypes, os
libc = ctypes.CDLL(None)
os.symlink("../secret", "tree/.other")
open("swapping", "w")
while not os.path.exists("enough"):
    libc.renameat2(-100, b"tree/sub", -100, b"tree/.other", 2)
EOS
    # As it is without anybody: once with the directory, once with the link in its place.
    ln -s ../secret tree/.other
    as_directory=$(digest)
    mv tree/sub tree/x
    mv tree/.other tree/sub
    mv tree/x tree/.other
    as_link=$(digest)
    mv tree/sub tree/x
    mv tree/.other tree/sub
    rm tree/x
    background /usr/bin/python3 swap.py
    patiently test -e swapping
    # Each content may be seen under either name, or both, or none of them.
    /usr/bin/python3 -c 'import hashlib, itertools, sys
def of(text): return "sha256:" + hashlib.sha256(text).hexdigest()
link = (of(b"link:../secret"), "")
public = (of(b"public\n"), "/file")
for a, b in itertools.product([link, public, None], repeat=2):
    rows = sorted([(n + e[1], e[0]) for n, e in ((".other", a), ("sub", b)) if e])
    print(of(b"".join(d.encode() + b"  " + n.encode() + b"\0" for n, d in rows)))' >allowed
    grep -qxF "$as_directory" allowed
    grep -qxF "$as_link" allowed
    for _ in $(seq 150); do
        seen=$(digest)
        [ "$seen" = null ] || grep -qxF "$seen" allowed
    done
    touch enough
}

# ---- what a store does not take

@test "a key that was given to another command is an error, and runs nothing" {
    submit --idempotency-key k -- true
    a=$id
    finished "$a"
    for other in "sh -c exit" "true x"; do
        # shellcheck disable=SC2086 # words
        run "$FORGE" submit --idempotency-key k -- $other
        [ "$status" -eq 125 ]
        [[ "$output" == *"--idempotency-key 'k' is that of run $a"* ]]
        # shellcheck disable=SC2086 # words
        run "$FORGE" run --idempotency-key k -- $other
        [ "$status" -eq 125 ]
    done
    mkdir other
    run "$FORGE" submit --idempotency-key k -i other -- true
    [ "$status" -eq 125 ]
    run "$FORGE" submit --idempotency-key k --env SEED=2 -- true
    [ "$status" -eq 125 ]
    run "$FORGE" submit --idempotency-key k -- true
    [ "$output" = "$a" ]
    [ "$("$FORGE" ps -qa)" = "$a" ]
    nothing_active
}

@test "a key is one user's, by uid, whatever the environment says" {
    USER=somebody forge_run --idempotency-key k -- true
    [ "$(field .user)" = "$(id -un)" ]
    [ "$(field .supervisor.uid)" = "$(id -u)" ]
    a=$(field .run_id)
    run env -u USER -u LOGNAME "$FORGE" submit --idempotency-key k -- true
    [ "$output" = "$a" ]
    # Of another user of the store.
    sql "UPDATE runs SET username = 'colleague' WHERE run_id = '$a'"
    submit --idempotency-key k -- true
    [ "$id" != "$a" ]
    finished "$id"
}

@test "outputs with paths of four kilobytes end in the store like any other" {
    cat >long.py <<'EOS'
import os, random, string
os.mkdir("outputs")
os.chdir("outputs")
random.seed(1)
for i in range(14):
    name = "".join(random.choice(string.ascii_letters) for _ in range(250))
    os.mkdir(name)
    os.chdir(name)
open("file", "w").write("deep")
EOS
    forge_run -i long.py -- python3 "$T/long.py"
    [ "$(field .status)" = succeeded ]
    [ ! -s "$err" ]
    id=$(field .run_id)
    [ "$(sql "SELECT status FROM runs WHERE run_id = '$id'")" = succeeded ]
    [ "$(sql "SELECT count(*) FROM outputs WHERE run_id = '$id' AND length(path) > 3000")" -eq 1 ]
    [ ! -e "$FORGE_HOME/undelivered/$id" ]
}

@test "a run that the store would refuse for ever does not stay open in it" {
    forge_run -- true
    if [ "${FORGE_TEST_STORE:-sqlite}" = postgres ]; then
        sql "ALTER TABLE outputs ADD CHECK (path NOT LIKE '%evil%')"
    else
        sql "CREATE TRIGGER no BEFORE INSERT ON outputs WHEN NEW.path LIKE '%evil%'
             BEGIN SELECT RAISE(ABORT, 'no'); END"
    fi
    forge_run -o evil -- touch evil
    id=$(field .run_id)
    [ "$(field .status)" = succeeded ]
    [ "$(sql "SELECT status FROM runs WHERE run_id = '$id'")" = succeeded ]
    [ "$(of "$id" .store_refused)" != null ]
    [ "$(field '.outputs | length' "$FORGE_HOME/runs/$id/record.json")" -eq 1 ]
    run "$FORGE" ps -q --status running
    [ -z "$output" ]
}

# ---- what a record says

@test "a record claims no isolation that there was not" {
    forge_run -- true
    [[ " $(field .isolation.mechanisms.namespaces) " == *" network "* ]]
    forge_run --network host -- true
    if [ "$(field .status)" = succeeded ]; then
        [[ " $(field .isolation.mechanisms.namespaces) " != *" network "* ]]
        [ "$(field .network)" = host ]
    fi
    # More than all may have together: nothing is made for it.
    forge_run --memory 65G -- true
    [ "$(field .status)" = rejected ]
    [ "$(field .isolation.level)" = none ]
    [ "$(field '.isolation.mechanisms | length')" -eq 0 ]
}

@test "a list of a hundred thousand outputs takes no more memory than it needs" {
    skip_unless "SQLite only" test "${FORGE_TEST_STORE:-sqlite}" = sqlite
    forge_run -o x -- sh -c 'echo out >x'
    id=$(field .run_id)
    /usr/bin/env python3 -c 'import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
record = json.loads(db.execute("SELECT record FROM runs").fetchone()[0])
record["outputs"] = [dict(record["outputs"][0], path=f"outputs/{i}") for i in range(100000)]
db.execute("UPDATE runs SET record = ?", (json.dumps(record),))
db.commit()' "$FORGE_HOME/forge.db"
    (ulimit -v 600000 && "${FORGE_PLAIN:-$FORGE}" outputs "$id" >list)
    [ "$(wc -l <list)" -eq 100001 ]
}

@test "a runtime that cannot be read to its end has no digest" {
    skip_unless "strace cannot trace here" strace -qq -o /dev/null true
    mkdir -p tree/bin tree/sub
    printf '#!/bin/sh\necho tool\n' >tree/bin/tool
    chmod 755 tree/bin/tool
    touch tree/sub/file
    budget 'runtimes:' '  mine:' '    kind: prefix' "    prefix: $T/tree" '    commands: [tool]'
    run "$FORGE" runtime check mine
    echo "$output"
    [ "$status" -eq 0 ]
    rm -rf "$FORGE_HOME/runtimes" "$FORGE_HOME/cache"
    run traced -e inject=getdents64:error=EIO:when=1+ -P "$T/tree/sub" "$FORGE" runtime check mine
    echo "$output"
    [ "$status" -ne 0 ]
}

# ---- descriptors

# copies_well OPTION...: forge, which copies descriptors, and none of them without close-on-exec.
copies_well() {
    ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} strace -f -qq -o trace -e trace=dup,fcntl "$FORGE" "$@"
    grep -q F_DUPFD_CLOEXEC trace
    run grep -E ' dup\(|F_DUPFD,' trace
    echo "$output"
    [ "$status" -eq 1 ]
}

@test "no descriptor is copied without close-on-exec, by a run or for its outputs" {
    skip_unless "strace cannot trace here" strace -qq -o /dev/null true
    mkdir in
    echo content >in/file
    chmod -R go+rX in
    copies_well run -q -i in/file -o x -- cp in/file x
    copies_well outputs --copy copy "$("$FORGE" ps -aq)"
    [ "$(cat copy/x)" = content ]
}
