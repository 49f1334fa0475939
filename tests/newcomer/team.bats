#!/usr/bin/env bats
# docs/TEAM.md with two real users: who sees what of whose runs.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
. "$BATS_TEST_DIRNAME/../lib/postgres.bash"

setup() {
    setup_newcomer
    skip_unless "only root can do this" is_root
    skip_unless "no PostgreSQL server" pg_bin
    page=$BATS_TEST_DIRNAME/../../docs/TEAM.md
    delegate=$BATS_TEST_DIRNAME/../tools/delegate.sh
    # Names that nobody has; a place, and a copy of the program, that everybody can reach.
    P=$(mktemp -d /tmp/forge-team-XXXXXX)
    alice=fga$BATS_ROOT_PID bob=fgb$BATS_ROOT_PID carol=fgc$BATS_ROOT_PID team=fgt$BATS_ROOT_PID
    chmod 755 "$P"
    install -D -m 755 "$FORGE" "$P/bin/forge"
    export PATH=$P/bin:$PATH
    groupadd "$team"
    for user in "$alice" "$bob" "$carol"; do
        useradd -M -d "$P/$user" -s /bin/sh "$user"
        install -d -m 700 -o "$user" "$P/$user"
    done
    pg_make
    chmod 711 "$FORGE_PG_DIR"
    pg_sql 'DROP DATABASE forge' postgres
    block 1 | while IFS= read -r line; do pg_sql "$line" postgres; done
}

teardown() {
    pg_remove
    for user in "${alice:-}" "${bob:-}" "${carol:-}"; do
        [ -z "$user" ] || userdel -f "$user" 2>/dev/null || true
    done
    [ -z "${P:-}" ] || rm -rf "$P"
    [ -z "${team:-}" ] || groupdel "$team" 2>/dev/null || true
    teardown_forge
}

# block N [KIND]: the Nth block of SQL, or of that kind, of the page, with our names and places.
block() {
    awk -v want="$1" -v kind="\`\`\`${2:-sql}" '/^```/ { if (is) is = 0; else if ($0 == kind) is = ++n == want; next } is' "$page" |
        sed "s/alice/$alice/g; s/bob/$bob/g; s/carol/$carol/g; s/science/$team/g; s|/srv/forge|$P/srv|g"
}

# as USER COMMAND...: in a session of that user, who is in the team's group.
as() {
    local user=$1 home=
    shift
    # As the page says for alice's profile.
    [ ! -d "$P/srv/$user" ] || home=$(eval "$(block 2 sh | sed "s/$alice/$user/")" && echo "$FORGE_HOME")
    FORGE_TEST_GROUPS=$(getent group "$team" | cut -d: -f3) "$delegate" --user "$(id -u "$user")" \
        env USER="$user" HOME="$P/$user" ${home:+FORGE_HOME="$home"} PATH="$PATH" \
        FORGE_STORE="postgresql:///forge?host=$FORGE_PG_DIR" sh -c 'cd && exec "$@"' sh "$@"
}

# share: what the page says that root does.
share() {
    block 1 sh >shared
    grep -q "$P/srv/$alice" shared
    sh -e shared
    sed "s/$alice/$bob/g" shared | sh -e
}

@test "a team: each sees the runs, logs and outputs of the other" {
    share
    # Whatever umask somebody has.
    as "$alice" sh -c 'umask 077; exec forge run -q --id fit -- sh -c "echo said; echo warned >&2; echo 42 >answer"'
    run as "$bob" forge ps
    says fit
    says "$alice"
    run as "$bob" forge show fit
    says Succeeded
    run as "$bob" forge logs --stdout fit
    [ "$status" -eq 0 ]
    [ "$output" = said ]
    run as "$bob" forge logs -f fit
    [ "$status" -eq 0 ]
    says warned
    run as "$bob" forge outputs fit
    [ "$status" -eq 0 ]
    says "these are $alice's, kept in $P/srv/$alice"
    says "$P/srv/$alice/objects/"
    says_not "$P/srv/$bob"
    says_not "not readable"
    run as "$bob" forge outputs fit --copy got
    [ "$status" -eq 0 ]
    [ "$(cat "$P/$bob/got/answer")" = 42 ]
    # And the other way round.
    as "$bob" forge run -q --id hers -- sh -c 'echo 1 >x'
    run as "$alice" forge ps
    says fit
    says hers
    # What is not for sharing is not shared.
    run as "$bob" cat "$P/srv/$alice/runs/$(as "$alice" forge ps -q --user "$alice")/record.json"
    [ "$status" -eq 1 ]
    run as "$bob" ls "$P/srv/$alice/active"
    [ "$status" -eq 2 ]
}

@test "a team: what is private stays so, and whose it is and where is said" {
    as "$alice" forge run -q --id fit -- sh -c 'echo said; echo 42 >answer'
    theirs=$P/$alice/.local/state/forge
    run as "$bob" forge logs fit
    [ "$status" -eq 1 ]
    says "are $alice's: kept in the owner's FORGE_HOME, $theirs, not readable to you"
    says "$alice can share them with a group: chmod g+rx $theirs"
    run as "$bob" forge outputs fit
    [ "$status" -eq 0 ]
    says "these are $alice's, kept in $theirs, not readable to you"
    says "$theirs/objects/"
    says_not "$P/$bob"
    run as "$bob" forge outputs fit --copy got
    [ "$status" -eq 1 ]
    says "kept in the owner's FORGE_HOME, $theirs, not readable to you"
    [ ! -e "$P/$bob/got" ]
}

@test "a team: only its owner ends or removes a run" {
    share
    as "$alice" forge run -q --id fit -- true
    run as "$bob" forge rm -f fit
    [ "$status" -eq 1 ]
    says "is $alice's"
    as "$alice" sh -c 'forge submit --id long -- sleep 300 >/dev/null
        forge ps -rq >"$HOME/open"; until [ -e "$HOME/over" ]; do sleep 0.1; done; forge kill --now long' &
    keeper=$!
    started+=("$keeper")
    patiently test -s "$P/$alice/open"
    run as "$bob" forge kill long
    [ "$status" -eq 1 ]
    says "is $alice's, who alone can end it"
    touch "$P/$alice/over"
    wait "$keeper"
    run as "$bob" forge gc
    [ "$status" -eq 0 ]
    [ "$(as "$alice" forge ps -qa | wc -l)" -eq 2 ]
}

@test "a team: who may only look looks; which right is missing is said" {
    share
    as "$alice" forge run -q --id fit -- sh -c 'echo 42 >answer; echo said'
    pg_sql "CREATE ROLE \"$carol\" LOGIN" postgres
    run as "$carol" forge ps
    says "permission denied for table forge_schema"
    says "GRANT SELECT"
    says "TO $carol"
    block 2 | grep -v '^CREATE' | while IFS= read -r line; do pg_sql "$line"; done
    run as "$carol" forge ps
    [ "$status" -eq 0 ]
    says fit
    run as "$carol" forge logs --stdout fit
    [ "$output" = said ]
    # A run of hers is made, and its record is kept until it may be told.
    run as "$carol" forge run --id own -- sh -c 'echo mine'
    [ "$status" -eq 0 ]
    says mine
    says "permission denied for table"
    run as "$bob" forge show own
    [ "$status" -eq 1 ]
    pg_sql "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO \"$carol\""
    run as "$carol" forge ps
    run as "$bob" forge show own
    [ "$status" -eq 0 ]
}

@test "a team: a row that lies about where its files are opens nothing" {
    share
    as "$alice" forge run -q --id fit -- echo said
    id=$(as "$alice" forge ps -q)
    # A directory of bob's, and one of alice's with a link in it to a file of bob's.
    as "$bob" sh -c "umask 077; mkdir -p mine/runs/$id; echo secret >mine/runs/$id/stdout; touch mine/runs/$id/stderr"
    as "$alice" sh -c "chmod 755 .; mkdir -p trap/runs/$id; ln -s $P/$bob/mine/runs/$id/stdout trap/runs/$id/stdout; chmod -R 755 trap"
    for place in "$P/$bob/mine" "$P/$alice/trap"; do
        pg_sql "UPDATE runs SET record = replace(record, '\"home\":\"$P/srv/$alice\"', '\"home\":\"$place\"'),
            analysis_id = analysis_id" forge
        [[ "$(pg_sql "SELECT record FROM runs" forge)" == *"$place"* ]]
        run as "$bob" forge logs fit
        [ "$status" -eq 1 ]
        says_not secret
        pg_sql "UPDATE runs SET record = replace(record, '$place', '$P/srv/$alice')" forge
    done
    run as "$bob" forge logs fit
    [ "$status" -eq 0 ]
    says said
}

# pipeline USER: a pipeline of two steps in that user's home.
pipeline() {
    as "$1" sh -c 'mkdir -p p && cat >p/pipeline.yaml && seq 9 >p/numbers' <<'YAML'
name: sums
steps:
  double: {inputs: {n: numbers}, run: 'while read -r i; do echo $((2 * i)); done <$n >doubled', outputs: [doubled]}
  sum: {inputs: {d: double/doubled}, run: 'paste -sd+ $d | bc >sum', outputs: [sum]}
YAML
}

# trusts USER OWNER: USER reuses the results of OWNER, as the page says.
trusts() {
    as "$1" sh -c 'mkdir -p .config/forge; cat >.config/forge/forge.yaml' < <(block 2 yaml | sed "s|srv/$alice|srv/$2|")
    as "$1" grep -q "$P/srv/$2" .config/forge/forge.yaml
}

runs_of() { pg_sql "SELECT count(*) FROM runs WHERE username = '$1'"; }

@test "a team: a step that another member has run does not run again" {
    share
    pipeline "$alice"
    pipeline "$bob"
    as "$alice" forge pipeline run -q p
    trusts "$bob" "$alice"
    run as "$bob" forge pipeline run -n p
    says "double: up to date"
    says "$alice's result, from $P/srv/$alice"
    [ ! -e "$P/srv/$bob/reused" ]
    run as "$bob" forge pipeline run p
    [ "$status" -eq 0 ]
    says "2 steps up to date"
    [ "$(runs_of "$bob")" = 0 ]
    run as "$bob" forge pipeline run --json -f p
    [ "$(jq -r 'select(.event == "cached") | .from' <<<"$output" | sort -u)" = "$P/srv/$alice" ]
    # They are bob's now: the owner may go.
    as "$alice" sh -c 'forge rm -f $(forge ps -qa)'
    [ "$(runs_of "$alice")" = 0 ]
    as "$bob" sh -c 'printf "retention: {objects: 1ms}\n" >>.config/forge/forge.yaml'
    pause 1.1 # gc counts in seconds
    as "$bob" forge gc
    run as "$bob" forge pipeline run p
    says "2 steps up to date"
    as "$bob" forge pipeline outputs p --copy got
    [ "$(cat "$P/$bob/got/sum/sum")" = 90 ]
    run as "$bob" forge verify
    [ "$status" -eq 0 ]
    # What is changed runs again, with what is the other's as its input.
    as "$bob" sed -i 's/bc >sum/bc | tr 9 8 >sum/' p/pipeline.yaml
    run as "$bob" forge pipeline run p
    says "1 ran, 1 up to date"
    [ "$(runs_of "$bob")" = 1 ]
    # Who is not trusted any more is not believed any more.
    as "$bob" mv .config/forge/forge.yaml later.yaml
    run as "$bob" forge pipeline run p
    says "1 ran, 1 up to date"
    # An object that a run and such a result have stays when the run goes.
    as "$bob" sh -c 'forge rm -f $(forge ps -qa)'
    as "$bob" mv later.yaml .config/forge/forge.yaml
    run as "$bob" forge pipeline explain -f p double
    says "up to date"
    # What no pipeline uses goes, and its files with it.
    as "$bob" sh -c 'printf "  reused: 1ms\n" >>.config/forge/forge.yaml; sed -i "s/^retention: {objects: 1ms}/retention:\n  objects: 1ms/" .config/forge/forge.yaml'
    pause 1.1
    run as "$bob" forge gc
    says "forget another user's result"
    [ "$(find "$P/srv/$bob/objects" -type f | wc -l)" = 0 ]
    run as "$bob" forge pipeline run p
    says "2 ran"
}

@test "a team: results of a copy that is damaged, or older than its sharing" {
    pipeline "$alice"
    pipeline "$bob"
    share
    as "$alice" chmod g-rx "$P/srv/$alice"
    as "$alice" forge pipeline run -q p
    as "$alice" chmod g+rx "$P/srv/$alice"
    as "$alice" sh -c 'chmod g+rx $FORGE_HOME/runs $FORGE_HOME/objects $FORGE_HOME/objects/* $FORGE_HOME/runs/*'
    trusts "$bob" "$alice"
    run as "$bob" forge pipeline run -n p
    says_not "up to date"
    as "$alice" forge gc
    run as "$bob" forge pipeline run p
    says "2 steps up to date"
    # Ours is damaged: it is taken again.
    object=$(find "$P/srv/$bob/objects" -type f | head -n 1)
    was=$(cat "$object")
    chmod u+w "$object"
    echo 1 >"$object"
    run as "$bob" forge pipeline run p
    says "2 steps up to date"
    [ "$(cat "$object")" = "$was" ]
    [ "$(runs_of "$bob")" = 0 ]
    # Theirs is damaged as well: it runs here, and the reason says why.
    theirs=${object/$P\/srv\/$bob/$P\/srv\/$alice}
    rm -rf "$P/srv/$bob/reused" "$object"
    chmod u+w "$theirs"
    tr 0-9 1-90 <"$theirs" >changed
    cat changed >"$theirs"
    run as "$bob" forge pipeline run -q --json p
    [[ "$(jq -r 'select(.event == "started") | .why' <<<"$output")" == *"has its result, but "*"it is damaged"* ]]
    [ "$(runs_of "$bob")" -gt 0 ]
    run as "$bob" forge pipeline outputs p --copy got
    [ "$(cat "$P/$bob/got/sum/sum")" = 90 ]
}

@test "a team: what proves no result is not reused" {
    share
    pipeline "$alice"
    pipeline "$bob"
    pipeline "$carol"
    as "$alice" forge pipeline run -q p
    trusts "$bob" "$alice"
    is_run_here() {
        run as "$bob" forge pipeline run -n p
        says_not "up to date"
    }
    result=$(grep -l '"doubled"' "$P/srv/$alice"/runs/*/result.json)
    id=$(basename "$(dirname "$result")")
    cp -p "$result" kept
    # Of a row that says that it has succeeded there is no result.
    rm "$result"
    is_run_here
    # The result of another run, of another key, of another host.
    jq '.run_id |= sub("^01"; "00")' kept >"$result"
    chown "$alice:$team" "$result"
    chmod 640 "$result"
    is_run_here
    jq '.key |= sub("sha256:...."; "sha256:0000")' kept >"$result"
    is_run_here
    jq '.host = "elsewhere"' kept >"$result"
    is_run_here
    cat kept >"$result"
    run as "$bob" forge pipeline run -n p
    says "double: up to date"
    # Of another maker, or not one that its owner alone can write.
    chown "$bob" "$result"
    is_run_here
    says "result.json: Operation not permitted"
    chown "$alice" "$result"
    chmod 660 "$result"
    is_run_here
    chmod 640 "$result"
    mv "$result" "$P/srv/$alice/elsewhere"
    ln -s ../../elsewhere "$result"
    is_run_here
    rm "$result"
    mv "$P/srv/$alice/elsewhere" "$result"
    # A directory in which others can write, on the way or at its end.
    for dir in "$P/srv/$alice" "$P/srv"; do
        mode=$(stat -c %a "$dir")
        chmod g+w,o+w "$dir"
        run as "$bob" forge pipeline run -q -n p
        says_not "up to date"
        run as "$bob" forge pipeline lint p
        chmod "$mode" "$dir"
    done
    chmod 1777 "$P/srv"
    is_run_here
    chmod 755 "$P/srv"
    run as "$bob" forge pipeline run -n p
    says "double: up to date"
    # The project's own file may not say whose results count.
    as "$bob" mv .config/forge/forge.yaml p/forge.yaml
    run as "$bob" sh -c 'cd p && forge pipeline run -n'
    [ "$status" -ne 0 ]
    says "pipeline.reuse_from"
    says "is for /etc/forge/forge.yaml"
}

@test "a team: a directory that others can change is not trusted, and that is said" {
    share
    pipeline "$alice"
    pipeline "$bob"
    as "$alice" forge pipeline run -q p
    trusts "$bob" "$alice"
    chmod g+w "$P/srv/$alice"
    run as "$bob" forge pipeline run p
    [ "$status" -eq 0 ]
    says "warning"
    says "users other than its owner can change what is in $P/srv/$alice"
    says "2 ran"
}

@test "a team: temporary outputs of another member are known by their digests, and nothing is missing" {
    share
    for user in "$alice" "$bob"; do
        as "$user" sh -c 'mkdir -p p && cat >p/pipeline.yaml && seq 9 >p/numbers' <<'YAML'
name: sums
steps:
  double: {inputs: {n: numbers}, run: 'while read -r i; do echo $((2 * i)); done <$n >doubled; echo ok >kept', outputs: [{path: doubled, temp: true}, kept]}
  sum: {inputs: {d: double/doubled}, run: 'paste -sd+ $d | bc >sum', outputs: [sum]}
YAML
    done
    as "$alice" forge pipeline run -q p
    trusts "$bob" "$alice"
    run as "$bob" forge pipeline run p
    says "2 steps up to date"
    [ "$(find "$P/srv/$bob/objects" -type f | wc -l)" = 2 ]
    run as "$bob" forge verify
    [ "$status" -eq 0 ]
    run as "$bob" forge pipeline outputs p --copy got
    [ "$status" -eq 0 ]
    [ "$(cat "$P/$bob/got/sum/sum")" = 90 ]
    run as "$bob" forge pipeline outputs p --only double
    says "double/kept"
    says "double/doubled  23 B  dropped"
    run as "$bob" forge pipeline outputs p --only double --copy other
    [ "$status" -ne 0 ]
    says "nothing is copied: double/doubled was temporary, and dropped"
    # What needs the temporary one again makes it again.
    as "$bob" sed -i 's/bc >sum/bc | tr 9 8 >sum/' p/pipeline.yaml
    run as "$bob" forge pipeline run p
    [ "$status" -eq 0 ]
    says "2 ran"
    as "$bob" forge pipeline outputs p --copy third
    [ "$(cat "$P/$bob/third/sum/sum")" = 80 ]
}

@test "a team: a damaged object whose content is good again is repaired by taking it again" {
    share
    pipeline "$alice"
    pipeline "$bob"
    as "$alice" forge pipeline run -q p
    trusts "$bob" "$alice"
    as "$bob" forge pipeline run -q p
    object=$(find "$P/srv/$bob/objects" -type f | head -n 1)
    cp -p "$object" good
    chmod u+w "$object"
    tr 0-9 1-90 <good >"$object"
    run as "$bob" forge verify
    says "1 damaged"
    cat good >"$object"
    run as "$bob" forge pipeline run p
    says "2 steps up to date"
    [ -z "$(find "$P/srv/$bob/damaged" -name '*.json')" ]
    as "$bob" forge pipeline outputs p --copy got
    [ "$(cat "$P/$bob/got/sum/sum")" = 90 ]
}

@test "a team: whatever a result of another member says, it costs no more than a run here" {
    share
    pipeline "$alice"
    pipeline "$bob"
    as "$alice" forge pipeline run -q p
    trusts "$bob" "$alice"
    result=$(grep -l '"doubled"' "$P/srv/$alice"/runs/*/result.json)
    cp -p "$result" kept
    digest=$(jq -r '.outputs[0].sha256' kept)
    # No result of this step: it runs here, and all is well.
    for change in '.outputs += .outputs' '.outputs[0].size = -5' '.outputs += [.outputs[0] | .path = "../../../../evil"]' \
        '.outputs += [.outputs[0] | .path = "/evil"]' '.outputs += [.outputs[0] | .path = "extra"]' '.outputs[0].path = "doubled/."' \
        '.outputs[0].sha256 = "sha256:12"' '.outputs = {}' '.outputs = []' '.outputs[0].path = 7'; do
        jq -c "$change" kept >"$result"
        run as "$bob" forge pipeline run -n p
        [ "$status" -eq 0 ]
        says_not "double: up to date"
    done
    # What is no part of a result is not kept.
    jq -c --arg digest "$digest" '.outputs += [{path: "x", size: 1, sha256: ($digest | sub("sha256:...."; "sha256:0000")), checkpoint: true}] |
        .asked = {script: {path: "x", sha256: ($digest | sub("sha256:...."; "sha256:1111"))}} | .user = "\u001b[31m" + ("x" * 5000)' kept >"$result"
    run as "$bob" forge pipeline run p
    says "2 steps up to date"
    says_not $'\e'
    # A large one is stored as what it says, and read again.
    rm -r "$P/srv/$bob/reused"
    python3 -c 'import json,sys; r = json.load(open("kept")); r["pad"] = [0] * 9000000; json.dump(r, open(sys.argv[1], "w"), separators=(",", ":"))' "$result"
    run as "$bob" forge pipeline run p
    says "2 steps up to date"
    [ "$(cat "$P/srv/$bob"/reused/* | wc -c)" -lt 4000 ]
    for command in gc verify "pipeline run p" "pipeline outputs p --copy got"; do
        # shellcheck disable=SC2086 # words
        run as "$bob" forge $command
        [ "$status" -eq 0 ]
    done
    # An entry that nobody can have written is no obstacle, and gc removes it.
    entry=$(find "$P/srv/$bob/reused" -type f | head -n 1)
    truncate -s 70M "$entry"
    run as "$bob" forge pipeline run p
    says "2 steps up to date"
    truncate -s 70M "$entry"
    run as "$bob" forge gc
    [ "$status" -eq 0 ]
    says "remove damaged"
    [ ! -e "$entry" ]
}

@test "a team: rows that lead nowhere do not hide a result" {
    share
    pipeline "$alice"
    pipeline "$bob"
    as "$alice" forge pipeline run -q p
    trusts "$bob" "$alice"
    columns=$(pg_sql "SELECT string_agg(column_name, ',') FROM information_schema.columns WHERE table_name = 'runs' AND column_name <> 'run_id'")
    pg_sql "INSERT INTO runs (run_id, $columns) SELECT '01zzzzzzzzzzzzzzzzzzzzz' || i, $columns FROM runs, generate_series(100, 170) AS i WHERE step = 'double'"
    run as "$bob" forge pipeline run p
    says "2 steps up to date"
}
