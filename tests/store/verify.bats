#!/usr/bin/env bats
# forge verify: objects that changed on disk are found, marked, named with their runs, and repaired.
# SPDX-License-Identifier: Apache-2.0

load ../lib/store.bash
setup() { setup_store; }
teardown() { teardown_store; }

# made LABEL FILE TEXT...: a run that leaves files; $id is the run.
made() {
    local label=$1 script=''
    shift
    while [ $# -gt 0 ]; do
        script+="printf '%s' '$2' >$1;"
        shift 2
    done
    forge_run --id "$label" -- sh -c "$script"
    [ "$status" -eq 0 ]
    id=$(field .run_id)
}

digest_of() { printf '%s' "$1" | sha256sum | cut -d' ' -f1; }
# object TEXT: where the object with this content is.
object() {
    local hex
    hex=$(digest_of "$1")
    echo "$FORGE_HOME/objects/${hex:0:2}/${hex:2}"
}
mark() { echo "$FORGE_HOME/damaged/$(digest_of "$1").json"; }

# flip FILE: one bit of its first byte, and nothing else.
flip() {
    python3 -c 'import os, sys
mode = os.stat(sys.argv[1]).st_mode
os.chmod(sys.argv[1], 0o600)
with open(sys.argv[1], "r+b", buffering=0) as f:
    byte = f.read(1)[0]
    f.seek(0)
    f.write(bytes([byte ^ 1]))
    os.fsync(f.fileno())
os.chmod(sys.argv[1], mode)' "$1"
}

verify() {
    run "$FORGE" verify "$@"
    echo "$output"
}

# of_json PATH ARG...: a value of what forge verify --json ARG... prints.
of_json() {
    local path=$1
    shift
    { "$FORGE" verify --json "$@" || true; } | jq -r "$path"
}

@test "what nobody changed is good" {
    verify
    [ "$status" -eq 0 ]
    [ "$output" = "0 objects, 0 B: 0 damaged, 0 missing" ]
    made fit a one b two c one
    verify
    [ "$status" -eq 0 ]
    [ "$output" = "2 objects, 6 B: 0 damaged, 0 missing" ]
    verify -q
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    [ "$("$FORGE" verify --json | jq -c .)" = '{"checked":2,"bytes":6,"damaged":[],"missing":[],"not_checked":[],"good_again":[]}' ]
    [ ! -e "$FORGE_HOME/damaged" ]
}

@test "a flipped bit is found, marked, and named with both runs that have the file" {
    made first x.csv precious other fine
    first=$id
    made second y.csv precious
    second=$id
    flip "$(object precious)"
    verify
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "2 objects, 12 B: 1 damaged, 0 missing" ]
    [[ "${lines[1]}" == "damaged      sha256:$(digest_of precious): its content has changed"* ]]
    [ "$(printf '%s\n' "${lines[@]:2}" | sort)" = "$(printf '%13s%s\n' '' "first ($first)  x.csv" '' "second ($second)  y.csv")" ]
    [ "$(jq -r .sha256 "$(mark precious)")" = "sha256:$(digest_of precious)" ]
    [ "$(jq -r .found "$(mark precious)")" = "sha256:$(sha256sum "$(object precious)" | cut -d' ' -f1)" ]
    [ ! -e "$(mark fine)" ]
    # Only the bad news with -q, and the same again the second time.
    verify -q
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 3 ]
    [ "$(of_json '.damaged | length')" -eq 1 ]
    [ "$(of_json '[.damaged[0].runs[] | .run_id + " " + .analysis_id + " " + .path] | sort | join(",")')" = \
        "$first first x.csv,$second second y.csv" ]
}

@test "outputs, --copy and show tell that a file is damaged, and it is not copied" {
    made fit bad precious good fine
    flip "$(object precious)"
    verify
    [ "$status" -eq 1 ]
    run --separate-stderr "$FORGE" outputs fit
    [ "$status" -eq 0 ]
    [[ "$output" == *"$(object precious) (damaged)"* ]]
    [[ "$output" != *"$(object fine) (damaged)"* ]]
    [[ "$stderr" == *"1 of these is damaged; \`forge verify $id\` says how"* ]]
    [ "$("$FORGE" outputs --json fit | jq -c '[.[] | [.path, .damaged]]')" = '[["bad",true],["good",null]]' ]
    [ "$("$FORGE" show --json fit | jq -c '[.outputs[] | [.path, .damaged]]')" = '[["bad",true],["good",null]]' ]
    "$FORGE" show fit | grep -q "$(digest_of precious) (damaged)"
    for force in '' --force; do
        # shellcheck disable=SC2086 # no word at all
        run "$FORGE" outputs $force --copy got fit
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"output bad is damaged: forge verify found at 20"*"its content has changed"* ]]
        [[ "$output" == *"forge rerun $id"* ]]
        [ ! -e got ]
    done
    # The mark is of this FORGE_HOME: no record has it.
    run grep -rq '"damaged"' "$FORGE_HOME/runs"
    [ "$status" -eq 1 ]
}

@test "a run that makes the same file repairs it, linked or copied" {
    for keep in '' --keep; do
        made "fit$keep" bad "precious$keep" good "fine"
        flip "$(object "precious$keep")"
        verify
        [ "$status" -eq 1 ]
        [ -e "$(mark "precious$keep")" ]
        # shellcheck disable=SC2086 # no word at all
        forge_run $keep -- sh -c "printf %s precious$keep >again; cp again once-more"
        [ "$status" -eq 0 ]
        [ "$(cat "$(object "precious$keep")")" = "precious$keep" ]
        [ "$(stat -c %a "$(object "precious$keep")")" = 444 ]
        [ ! -e "$(mark "precious$keep")" ]
        "$FORGE" outputs --copy "got$keep" "fit$keep"
        [ "$(cat "got$keep/bad")" = "precious$keep" ]
        verify
        [ "$status" -eq 0 ]
    done
    [ -z "$(find "$FORGE_HOME/objects" -name '.*')" ]
}

@test "a damaged object that nobody has marked is not taken for good by a copy" {
    made fit bad precious
    flip "$(object precious)"
    run "$FORGE" outputs --copy got fit
    [ "$status" -eq 1 ]
    [[ "$output" == *"output bad is damaged: its digest is another"*"forge verify"* ]]
}

@test "a file that was restored is good again" {
    made fit bad precious
    cp -p "$(object precious)" saved
    flip "$(object precious)"
    verify
    [ "$status" -eq 1 ]
    mv -f saved "$(object precious)"
    # Until it is verified, the mark counts: a copy may share blocks with it that were not read.
    run "$FORGE" outputs --copy got fit
    [ "$status" -eq 1 ]
    [[ "$output" == *"\`forge verify $id\` checks it again"* ]]
    verify fit
    [ "$status" -eq 0 ]
    [ "$output" = "1 object, 8 B: 0 damaged, 0 missing, 1 good again" ]
    [ ! -e "$(mark precious)" ]
    "$FORGE" outputs --copy got fit
}

@test "a shorter file, another kind of file, and a record with another size" {
    made fit a precious b link c sized
    chmod u+w "$(object precious)"
    truncate -s 3 "$(object precious)"
    rm -f "$(object link)"
    ln -s /etc/passwd "$(object link)"
    jq -c '(.outputs[] | select(.path == "c").size) = 7' "$FORGE_HOME/runs/$id/record.json" >record.new
    cat record.new >"$FORGE_HOME/runs/$id/record.json"
    verify
    [ "$status" -eq 1 ]
    [[ "$output" == *"$(digest_of precious): it has 3 bytes instead of 8"* ]]
    [[ "$output" == *"$(digest_of link): it is no regular file"* ]]
    [[ "$output" == *"$(digest_of sized): its content is good, but a record says 7 bytes instead of 5"* ]]
    [ -e "$(mark precious)" ]
    [ -e "$(mark link)" ]
    # The object is good: nothing keeps a user from copying it.
    [ ! -e "$(mark sized)" ]
    forge_run -- sh -c 'printf link >again'
    [ "$status" -eq 0 ]
    [ "$(cat "$(object link)")" = link ]
    [ ! -L "$(object link)" ]
}

@test "a missing object is named with its runs, also when only the store knows the run" {
    made fit a precious b fine
    rm -f "$(object precious)"
    verify
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "1 object, 4 B: 0 damaged, 1 missing" ]
    [ "${lines[1]}" = "missing      sha256:$(digest_of precious): it is missing: No such file or directory" ]
    [ "${lines[2]}" = "             fit ($id)  a" ]
    [ "$(of_json '.missing[0].runs[0].path')" = a ]
    # What is not there needs no mark.
    [ ! -e "$(mark precious)" ]
    rm -rf "$FORGE_HOME/runs/$id"
    verify
    [ "$status" -eq 1 ]
    [ "${lines[2]}" = "             fit ($id)  a" ]
}

@test "the script of a run is checked too" {
    skip_unless "needs Python" command -v python3
    echo 'print("hello")' >fit.py
    forge_run --id scripted -- "$T/fit.py"
    [ "$status" -eq 0 ]
    digest=$(field .asked.script.sha256)
    [[ "$digest" == sha256:* ]]
    flip "$FORGE_HOME/objects/${digest:7:2}/${digest:9}"
    verify last
    [ "$status" -eq 1 ]
    [[ "$output" == *"damaged      $digest: "*"scripted ($(field .run_id))  $T/fit.py  (its script)"* ]]
}

@test "with runs, only what they point to is read" {
    made sweep-1 a one
    made sweep-2 a two b one
    made other a three
    flip "$(object three)"
    verify 'sweep-*'
    [ "$status" -eq 0 ]
    [ "$output" = "2 objects, 6 B: 0 damaged, 0 missing" ]
    verify sweep-1
    [ "$output" = "1 object, 3 B: 0 damaged, 0 missing" ]
    verify other sweep-1
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "2 objects, 8 B: 1 damaged, 0 missing" ]
    verify nothing-like-this
    [ "$status" -eq 1 ]
    [[ "$output" == *"no run 'nothing-like-this'"* ]]
}

@test "an object that the disk cannot read is damaged; the error is told" {
    skip_unless "an ordinary user cannot mount" is_root
    made fit a precious b fine
    # The first page of a process's memory: a regular file that answers EIO.
    run unshare -m sh -c 'mount --bind /proc/$$/mem "$1" && shift && "$@"' sh "$(object precious)" "$FORGE" verify
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == "1 object, 4 B: 1 damaged, 0 missing"* ]]
    [[ "$output" == *"$(digest_of precious): it cannot be read: Input/output error"*"fit ($id)  a"* ]]
    [ "$(jq -r .problem "$(mark precious)")" = "it cannot be read: Input/output error" ]
    verify
    [ "$status" -eq 0 ]
    [ ! -e "$(mark precious)" ]
}

# powerless COMMAND...: as root, but without the right to read everything.
powerless() { setpriv --bounding-set=-dac_override,-dac_read_search "$@"; }

@test "an object that may not be read is neither missing nor damaged" {
    skip_unless "only root can do this" powerless true
    made fit a precious b fine
    chmod 000 "$(object precious)"
    run --separate-stderr powerless "$FORGE" verify
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "1 object, 4 B: 0 damaged, 0 missing, 1 not checked" ]
    [ "${lines[1]}" = "not checked  sha256:$(digest_of precious): it cannot be read: Permission denied" ]
    [ ! -e "$(mark precious)" ]
    chmod 444 "$(object precious)"
    # A directory whose names may not be read.
    dir=$(dirname "$(object precious)")
    chmod 000 "$dir"
    run --separate-stderr powerless "$FORGE" verify
    chmod 700 "$dir"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"0 damaged, 0 missing, 2 not checked"* ]]
    [[ "$output" == *"not checked  objects/$(basename "$dir"): Permission denied"* ]]
    # A record: what it points to is not known.
    chmod 000 "$FORGE_HOME/runs/$id/record.json"
    run --separate-stderr powerless "$FORGE" verify
    chmod 600 "$FORGE_HOME/runs/$id/record.json"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"not checked  $id: "*"Permission denied"* ]]
}

@test "the disk is read, not what the kernel still has in memory" {
    skip_unless "an ordinary user cannot mount" is_root
    skip_unless "no mkfs.ext4" command -v mkfs.ext4
    truncate -s 32M image
    mkfs.ext4 -q image
    mkdir disk
    cat >on-disk <<'END'
set -e
mount -o loop image disk
export FORGE_HOME=$PWD/disk/home
"$FORGE" run -q --id fit -- sh -c 'head -c 60 /dev/urandom | base64 -w0 >out'
sync -f disk
text=$(cat disk/home/objects/*/*)
"$FORGE" verify
at=$(grep -abo -m1 -F "$text" image | cut -d: -f1 | head -n1)
# In memory, and there still good.
cat disk/home/objects/*/* >/dev/null
printf '#' | dd of=image bs=1 seek="$at" conv=notrunc,fsync 2>/dev/null
grep -aqF "$text" disk/home/objects/*/*
rc=0
"$FORGE" verify || rc=$?
umount disk
exit "$rc"
END
    run unshare -m bash on-disk
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "${lines[0]}" == "1 object, "*": 0 damaged, 0 missing" ]]
    [[ "${lines[1]}" == "1 object, "*": 1 damaged, 0 missing" ]]
}

@test "what another FORGE_HOME has is not missing in this one" {
    made here a one
    FORGE_STORE=${FORGE_STORE:-sqlite:$FORGE_HOME/forge.db}
    export FORGE_STORE
    FORGE_HOME=$T/other "$FORGE" run -q --id there -- sh -c 'printf two >a'
    verify
    [ "$status" -eq 0 ]
    [ "$output" = "1 object, 3 B: 0 damaged, 0 missing" ]
    verify there
    [ "$status" -eq 1 ]
    [[ "$output" == *"not checked  "*": its files are "*"in the FORGE_HOME $T/other"* ]]
}

@test "without its store it checks what the records here point to" {
    made fit a precious b fine
    rm -f "$(object precious)"
    run "$FORGE" verify --store postgresql://nobody@127.0.0.1:1/none
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"1 object, 4 B: 0 damaged, 1 missing"*"fit ($id)  a"* ]]
}

@test "rm and gc remove the marks of what they remove" {
    made fit a precious
    made again b fine
    flip "$(object precious)"
    flip "$(object fine)"
    verify
    [ "$status" -eq 1 ]
    "$FORGE" rm -f fit
    [ ! -e "$(mark precious)" ]
    [ -e "$(mark fine)" ]
    rm -f "$(object fine)"
    touch "$FORGE_HOME/damaged/.$(digest_of fine).json.999999"
    "$FORGE" gc --dry-run | grep -q "would remove the mark of"
    [ -e "$(mark fine)" ]
    "$FORGE" gc
    [ -z "$(ls -A "$FORGE_HOME/damaged")" ]
}

# runs_and_rm: until there is a file "stop".
runs_and_rm() {
    local n=0
    until [ -e "$T/stop" ]; do
        n=$((n + 1))
        "$FORGE" run -q --id "churn-$1" -- sh -c "for i in 1 2 3 4 5 6; do echo $1-$n-\$i >f\$i; done; echo same >s" ||
            echo "run $?" >>"$T/failed"
        "$FORGE" rm -f "churn-$1" >/dev/null || echo "rm $?" >>"$T/failed"
    done
    touch "$T/stopped-$1"
}

@test "runs that store and rm that removes meanwhile cause no alarm" {
    made fixed a precious b fine
    background runs_and_rm 1
    background runs_and_rm 2
    for _ in {1..25}; do
        run "$FORGE" verify
        [ "$status" -eq 0 ] || { echo "$output"; break; }
    done
    touch stop
    patiently test -e stopped-1
    patiently test -e stopped-2
    [ "$status" -eq 0 ]
    [ ! -e failed ] || { cat failed; false; }
    [ ! -d "$FORGE_HOME/damaged" ]
    verify
    [ "$status" -eq 0 ]
}

@test "runs that repair meanwhile leave a good object without a mark" {
    made fit a precious
    for _ in {1..8}; do
        flip "$(object precious)"
        "$FORGE" verify -q >/dev/null || true
        background "$FORGE" verify -q
        forge_run -- sh -c 'printf precious >a; cp a b; cp a c'
        [ "$status" -eq 0 ]
        wait "$pid" || true
        [ ! -e "$(mark precious)" ]
        [ "$(cat "$(object precious)")" = precious ]
    done
    [ -z "$(find "$FORGE_HOME/objects" "$FORGE_HOME/damaged" -name '.*')" ]
}
