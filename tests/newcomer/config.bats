#!/usr/bin/env bats
# Limits by file, header and flag; files in layers; what a script may ask for by itself.
# SPDX-License-Identifier: Apache-2.0

load ../lib/newcomer.bash
setup() {
    setup_newcomer
    mkdir -p "$HOME/.config/forge"
    mine=$HOME/.config/forge/forge.yaml
}
teardown() { teardown_forge; }

@test "a project file with only analysis: leaves the store and the caps as they are" {
    printf 'store: sqlite:%s\nhost: {max: {memory: 256M}}\n' "$T/mine.db" >"$mine"
    echo 'analysis: {limits: {memory: 64M}}' >forge.yaml
    echo 'print(1)' >fit.py
    run forge run fit.py
    [ "$status" -eq 0 ]
    [ -s "$T/mine.db" ]
    [ "$(forge show --json last | jq .limits.memory_bytes)" -eq 67108864 ]
    run forge run --memory 512M fit.py
    [ "$status" -eq 125 ]
    says "256.00 MiB"
}

@test "an outer cap cannot be raised; config show --origin says so" {
    printf 'host:\n  max:\n    memory: 256M\n' >"$mine"
    printf 'host:\n  max:\n    memory: 8G\n    pids: 10\n' >forge.yaml
    run forge run --memory 1G -- true
    [ "$status" -eq 125 ]
    run forge config show --origin
    [ "$status" -eq 0 ]
    says "held back: ./forge.yaml:3: host.max.memory: 8G is above 256M of $mine:3"
    grep -Eq "^host.max.memory +256M +$mine:3$" <<<"$output"
    grep -Eq "^host.max.pids +10 +\./forge.yaml:4$" <<<"$output"
    grep -Eq "^workdir .* built-in$" <<<"$output"
    [ "$(forge config show --origin --json | jq -r '.[] | select(.key == "host.max.pids") | .from')" = ./forge.yaml:4 ]
}

@test "the site's file is the outermost, --config the innermost" {
    skip_unless "only root can do this" is_root
    echo 'outputs: {max_files: 1}' >"$mine"
    echo 'outputs: {max_files: 2}' >forge.yaml
    echo 'outputs: {max_files: 3}' >named.yaml
    site() {
        unshare -m sh -c 'mkdir -p "$T/site/forge" && cp -a /etc/. "$T/site/" && mount --bind "$T/site" /etc &&
            mkdir -p /etc/forge && printf "queue: {max_wait: 7h}\noutputs: {max_files: 9}\n" >/etc/forge/forge.yaml &&
            exec "$@"' sh "$@"
    }
    export T
    [ "$(site forge config show --json | jq '.outputs.max_files, .queue.max_wait' | xargs)" = "2 25200" ]
    [ "$(site forge config show --config named.yaml --json | jq '.outputs.max_files, .queue.max_wait' | xargs)" = "3 25200" ]
    rm forge.yaml "$mine"
    [ "$(site forge config show --json | jq .outputs.max_files)" -eq 9 ]
}

@test "limits by file, header and flag, each with its source" {
    printf 'profiles:\n  default: {memory: 300M, pids: 60, disk: 1G}\n' >forge.yaml
    mkdir sub
    echo 'analysis: {limits: {pids: 50, timeout: 5m}}' >sub/forge.yaml
    printf '# forge: timeout=90s\nprint(1)\n' >sub/fit.py
    run forge run --explain-limits --open-files 100 sub/fit.py
    [ "$status" -eq 0 ]
    grep -Eq "^memory +300.00 MiB +profile +default \(./forge.yaml:2\)" <<<"$output"
    grep -Eq "^pids +50 +forge.yaml +beside the script" <<<"$output"
    grep -Eq "^timeout +1 min 30 s +script +sub/fit.py" <<<"$output"
    grep -Eq "^open_files +100 +command line" <<<"$output"
    grep -Eq "^cpus +1 +profile +default *$" <<<"$output"
}

@test "forge run fit.py is enough: the file beside it names inputs, outputs and variables" {
    mkdir data
    echo 41 >data/x
    cat >fit.py <<'EOF'
import os
open("result", "w").write(str(int(open("data/x").read()) + int(os.environ["PLUS"])))
open("scratch", "w").write("x")
EOF
    echo 'analysis: {inputs: [data], outputs: [result], env: {PLUS: 1}}' >forge.yaml
    run forge run fit.py
    [ "$status" -eq 0 ]
    says "1 file was not kept, e.g. scratch"
    forge outputs last --copy got
    [ "$(cat got/result)" = 42 ]
    # From elsewhere too: paths are meant from where the script is.
    cd ..
    run forge run project/fit.py
    [ "$status" -eq 0 ]
    # Given by hand goes before.
    run forge run --env PLUS=2 -o 's*' project/fit.py
    [ "$status" -eq 0 ]
    [ "$(forge outputs --json last | jq -r '.[].path')" = scratch ]
}

@test "so does a header" {
    mkdir data
    echo 41 >data/x
    cat >fit.py <<'EOF'
# forge: input=data output=res* env=PLUS=1 memory=128M
import os
open("result", "w").write(str(int(open("data/x").read()) + int(os.environ["PLUS"])))
EOF
    run forge run fit.py
    [ "$status" -eq 0 ]
    [ "$(forge outputs --json last | jq -r '.[].path')" = result ]
    [ "$(forge show --json last | jq .limits.memory_bytes)" -eq 134217728 ]
    echo '# forge: inptu=x' >bad.py
    run forge run bad.py
    [ "$status" -eq 125 ]
    says "inptu"
}

@test "a script is not trusted: what lies elsewhere, and the network, is given by hand" {
    mkdir "$T/secret"
    echo s >"$T/secret/x"
    printf '# forge: input=%s\nprint(open("%s/x").read())\n' "$T/secret" "$T/secret" >fit.py
    run forge run fit.py
    [ "$status" -eq 125 ]
    says "not below its own directory"
    says "-i $T/secret"
    run forge run -i "$T/secret" fit.py
    [ "$status" -eq 0 ]
    # Nor by a link, nor by leading up.
    ln -s "$T/secret" here
    printf '# forge: input=here\n' >fit.py
    run forge run fit.py
    [ "$status" -eq 125 ]
    printf '# forge: input=../secret\n' >fit.py
    run forge run fit.py
    [ "$status" -eq 125 ]
    # Nor by a link to a script elsewhere, nor as a runtime.
    mkdir -p repo "$T/secret/bin"
    printf 'cat %s/x\n' "$T/secret" >"$T/tool.sh"
    ln -s "$T/tool.sh" repo/run.sh
    printf 'analysis: {inputs: [../../secret]}\n' >repo/forge.yaml
    run forge run repo/run.sh
    [ "$status" -eq 125 ]
    rm repo/run.sh repo/forge.yaml
    for word in "$T/secret" ../secret; do
        printf '# forge: runtime=%s\nprint(1)\n' "$word" >fit.py
        run forge run fit.py
        [ "$status" -eq 125 ]
        says "asks for the runtime"
    done
    # The file beside it is no better.
    printf 'print(1)\n' >fit.py
    printf 'analysis: {inputs: [%s]}\n' "$T/secret" >forge.yaml
    run forge run fit.py
    [ "$status" -eq 125 ]
    # What the configuration shows to every run it may name.
    printf 'read_only: [%s]\n' "$T/secret" >"$mine"
    run forge run fit.py
    [ "$status" -eq 0 ]
    rm forge.yaml
    printf '# forge: network=host\nprint(1)\n' >fit.py
    run forge run fit.py
    [ "$status" -eq 125 ]
    says "asks for the host's network"
    says "--network host"
    echo 'host: {scripts_network: true}' >forge.yaml
    run forge run fit.py
    [ "$status" -eq 125 ]
    says "is for /etc/forge/forge.yaml"
    # Who names it has read it.
    run forge run --config ./forge.yaml fit.py
    [ "$status" -eq 0 ]
    mv forge.yaml "$mine"
    run forge run fit.py
    [ "$status" -eq 0 ]
    [ "$(forge show --json last | jq -r .network)" = host ]
    run forge run --network none fit.py
    [ "$(forge show --json last | jq -r .network)" = none ]
}
