#!/usr/bin/env bats
# Kinds r and rootfs, and environments that micromamba and pixi made.
# SPDX-License-Identifier: Apache-2.0
load ../lib/runtime.bash

setup() { setup_runtimes; }
teardown() { teardown_store; }

# r_package NAME VERSION: installed into rlib, really.
r_package() {
    mkdir -p "src/$1/R" rlib
    printf 'Package: %s\nVersion: %s\nTitle: t\nDescription: d.\nLicense: GPL-2\nAuthor: a\nMaintainer: a <a@b.c>\n' "$1" "$2" >"src/$1/DESCRIPTION"
    echo 'export(answer)' >"src/$1/NAMESPACE"
    echo "answer <- function() '$1 $2'" >"src/$1/R/a.R"
    R CMD INSTALL --no-docs --no-test-load --no-byte-compile -l rlib "src/$1" >install.log 2>&1 || { cat install.log; return 1; }
    chmod -R go+rX rlib .
}

# rootfs PROGRAM...: busybox as these, in root/.
rootfs() {
    mkdir -p root/usr/bin root/usr/lib root/etc
    cp /bin/busybox root/usr/bin/busybox
    for name; do ln -sf busybox "root/usr/bin/$name"; done
    ln -sfn usr/bin root/bin
    chmod -R go+rX root .
}
shell=(sh ls cat tr cut grep head tail env test)

@test "r: packages of its own, by script and by command, with their versions" {
    r_package toy 0.3
    declare_runtime rr 'kind: r' "libraries: [$T/rlib]" 'R: [toy, stats]'
    printf 'library(toy)\ncat(answer(), R.version$major, "\\n")\n' >a.R
    forge_run -r rr a.R
    [ "$status" -eq 0 ]
    [[ "$(cat "$out")" == "toy 0.3 "* ]]
    [ "$(field .runtime.versions.toy)" = 0.3 ]
    # Without the runtime there is no such package.
    forge_run a.R
    [ "$status" -ne 0 ]
}

@test "r: another version is another digest, and drift; the place does not count" {
    r_package toy 0.3
    r_package other 1.0
    declare_runtime rr 'kind: r' "libraries: [$T/rlib]" 'R: [toy]'
    cp -rp rlib copy
    declare_runtime cc 'kind: r' "libraries: [$T/copy]" 'R: [toy]'
    [ "$(digest rr)" = "$(digest cc)" ]
    "$FORGE" runtime lock rr >rr.lock
    run "$FORGE" runtime check rr --lock rr.lock
    echo "$output"
    [ "$status" -eq 0 ]
    before=$(digest rr)
    r_package toy 0.4
    [ "$(digest rr)" != "$before" ]
    run "$FORGE" runtime check rr --lock rr.lock
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"changed toy 0.3 -> 0.4"* ]]
    # Not only what is declared.
    before=$(digest rr)
    rm -r rlib/other
    [ "$(digest rr)" != "$before" ]
}

@test "r: a package that is missing, damaged or in no library makes it broken" {
    r_package toy 0.3
    declare_runtime rr 'kind: r' "libraries: [$T/rlib]" 'R: [absent]'
    run "$FORGE" run -r rr -- Rscript -e 1
    [ "$status" -eq 125 ]
    [[ "$output" == *"R package absent"* ]]
    declare_runtime rr 'kind: r' "libraries: [$T/rlib]" 'R: [toy]'
    rm rlib/toy/Meta/package.rds
    run "$FORGE" runtime check rr
    echo "$output"
    [ "$status" -eq 1 ]
    declare_runtime rr 'kind: r' "libraries: [$T/nowhere]"
    run "$FORGE" run -r rr -- Rscript -e 1
    [ "$status" -eq 125 ]
    [[ "$output" == *"nowhere is no directory"* ]]
}

@test "r: a library behind a link, and none of the user's" {
    r_package toy 0.3
    ln -s rlib link
    mkdir -p "$HOME/R/library"
    cp -r rlib/toy "$HOME/R/library/leaky"
    declare_runtime rr 'kind: r' "libraries: [$T/link]" 'R: [toy]'
    R_LIBS_USER=$HOME/R/library R_LIBS=$HOME/R/library forge_run -r rr -- \
        Rscript -e 'cat(toy::answer(), requireNamespace("leaky", quietly = TRUE), file.access(.libPaths()[1], 2))'
    [ "$(cat "$out")" = "toy 0.3 FALSE -1" ]
}

@test "r: its packages are there in an R notebook" {
    r_package toy 0.3
    declare_runtime rr 'kind: r' "libraries: [$T/rlib]" 'R: [toy, IRkernel]'
    jq -n '{nbformat: 4, nbformat_minor: 4, metadata: {kernelspec: {name: "ir", display_name: "R", language: "R"}},
        cells: [{cell_type: "code", execution_count: null, outputs: [], metadata: {}, source: "cat(toy::answer())"}]}' >a.ipynb
    forge_run -r rr a.ipynb
    [ "$status" -eq 0 ]
    [[ "$(cat "$out")" == *"toy 0.3"* ]]
}

@test "rootfs: the host's user land is not there, and its own cannot be written" {
    rootfs "${shell[@]}"
    echo marker >root/usr/lib/only-here
    declare_runtime box 'kind: rootfs' "prefix: $T/root" 'commands: [sh, ls]'
    forge_run -r box -- sh -c 'cat /usr/lib/only-here; for f in /usr/bin/python3 /usr/bin/perl /usr/lib/x86_64-linux-gnu /usr/share; do [ -e $f ] && echo "$f"; done
        echo x 2>/dev/null >/usr/lib/written && echo written; echo "$PATH"'
    [ "$(sed -n 1p "$out")" = marker ]
    [ "$(sed -n 2p "$out")" = /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin ]
    [ ! -e root/usr/lib/written ]
    # A script is run by its own shell; a Python script by nobody.
    echo 'echo from a script' >a.sh
    forge_run -r box a.sh
    [ "$(cat "$out")" = "from a script" ]
    echo 'print("the host")' >a.py
    forge_run -r box a.py
    [ "$status" -eq 127 ]
}

@test "rootfs: without what it declares, or without a shell, it is broken" {
    rootfs "${shell[@]}"
    declare_runtime box 'kind: rootfs' "prefix: $T/root" 'commands: [sh, python3]'
    run "$FORGE" run -r box -- sh -c 1
    [ "$status" -eq 125 ]
    [[ "$output" == *"command python3: not in PATH"* ]]
    rm root/usr/bin/sh
    declare_runtime box 'kind: rootfs' "prefix: $T/root" 'commands: [ls]'
    run "$FORGE" runtime check box
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *broken* ]]
    declare_runtime box 'kind: rootfs' "prefix: /" 'commands: [ls]'
    run "$FORGE" runtime check box
    [[ "$output" == *"is the host"* ]]
    mkdir empty
    declare_runtime box 'kind: rootfs' "prefix: $T/empty" 'commands: [ls]'
    run "$FORGE" runtime check box
    [[ "$output" == *"has no usr/"* ]]
}

@test "rootfs: every file counts, or its package list; drift is told by name" {
    rootfs "${shell[@]}"
    declare_runtime box 'kind: rootfs' "prefix: $T/root" 'commands: [sh]'
    echo one >root/usr/lib/file
    "$FORGE" runtime lock box >box.lock
    before=$(digest box)
    echo two >root/usr/lib/file
    [ "$(digest box)" != "$before" ]
    run "$FORGE" runtime check box --lock box.lock
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"changed usr/lib/file"* ]]
    mkdir -p root/var/lib/dpkg
    printf 'Package: base-files\nStatus: install ok installed\nVersion: 12\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n' >root/var/lib/dpkg/status
    "$FORGE" runtime lock box >box.lock
    grep -q '^deb.base-files.12' box.lock
    run grep gone box.lock
    [ "$status" -eq 1 ]
    sed -i 's/^Version: 12/Version: 13/' root/var/lib/dpkg/status
    run "$FORGE" runtime check box --lock box.lock
    [ "$status" -eq 1 ]
    [[ "$output" == *"changed base-files 12 -> 13"* ]]
    forge_run -r box -- sh -c 'echo still works'
    [ "$status" -eq 0 ]
}

# Settings of the environment that a run has.
environment() { forge_run -r "$1" -- python -c 'import os; print("\n".join(f"{k}={v}" for k, v in sorted(os.environ.items())))'; }
has() { grep -qxF -- "$1" "$out" || { echo "not there: $1"; return 1; }; }
hasnt() { ! grep -q "^$1=" "$out" || { echo "there: $1"; return 1; }; }

@test "micromamba: found by name without a conda, activated by mamba's rules" {
    mkdir -p "$HOME/micromamba/pkgs"
    conda_prefix "$HOME/micromamba/envs/bio" 1.0
    mkdir -p "$HOME/micromamba/envs/bio/etc/conda/env_vars.d"
    echo '{"lower_name": "1", "TMP_X": "2"}' >"$HOME/micromamba/envs/bio/etc/conda/env_vars.d/a.json"
    [ "$(health bio)" = unchecked ]
    environment bio
    [ "$status" -eq 0 ]
    has "CONDA_PREFIX=$HOME/micromamba/envs/bio"
    has "CONDA_DEFAULT_ENV=bio"
    has "CONDA_SHLVL=1"
    has "PATH=$HOME/micromamba/envs/bio/bin:$HOME/micromamba/condabin:/usr/local/bin:/usr/bin:/bin"
    has "LOWER_NAME=1"
    hasnt lower_name
    hasnt CONDA_EXE
    hasnt _CE_M
    # Also when its root is elsewhere, and by its name in a declaration.
    mkdir -p "$T/roots"
    mv "$HOME/micromamba" "$T/roots/mm"
    export MAMBA_ROOT_PREFIX=$T/roots/mm
    chmod go+rx "$T/roots"
    declare_runtime named 'kind: conda' 'prefix: bio' 'python: [shape]'
    forge_run -r named -- python -c 'import shape, sys; print(shape.__version__, sys.prefix)'
    [ "$(cat "$out")" = "1.0 $T/roots/mm/envs/bio" ]
}

@test "pixi: an environment of a project, of no installation" {
    # There is a conda too, which has no business with it.
    conda_env other 1.0
    mkdir -p project/.pixi/envs
    mv "$HOME/miniconda3/envs/other" project/.pixi/envs/default
    printf '{"manifest_path": "%s/project/pixi.toml", "environment_name": "default", "pixi_version": "0.40.0"}' "$T" \
        >project/.pixi/envs/default/conda-meta/pixi
    rm project/.pixi/envs/default/conda-meta/history # as older ones are
    chmod -R go+rX project .
    declare_runtime px 'kind: conda' "prefix: $T/project/.pixi/envs/default" 'python: [shape]'
    environment px
    [ "$status" -eq 0 ]
    has "CONDA_PREFIX=$T/project/.pixi/envs/default"
    has "CONDA_DEFAULT_ENV=default"
    has "PATH=$T/project/.pixi/envs/default/bin:/usr/local/bin:/usr/bin:/bin"
    hasnt CONDA_EXE
    [ "$(field .runtime.versions.shape)" = 1.0 ]
    "$FORGE" runtime lock px | grep -qx 'https://c.example/shape-1.0-0.conda#00000000000000000000000000000001'
    # pixi installs: the digest follows.
    before=$(digest px)
    conda_prefix "$T/project/.pixi/envs/default" 2.0
    [ "$(digest px)" != "$before" ]
}

@test "rootfs: a shell that does nothing and succeeds is no proof" {
    rootfs "${shell[@]}"
    rm root/usr/bin/sh
    echo 'int main(void) { return 0; }' | cc -static -x c -o root/usr/bin/sh -
    declare_runtime stub 'kind: rootfs' "prefix: $T/root" 'commands: [ls]'
    run "$FORGE" runtime check stub
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"the probe did not end"* ]]
    run "$FORGE" run -r stub -- ls
    [ "$status" -eq 125 ]
}

@test "system: what the administrator installed goes before Debian's, in the digest as in Python" {
    declare_runtime sci 'kind: system' 'commands: [python3]' 'python: [numpy]'
    before=$(digest sci)
    place=$(/usr/bin/python3 -c 'import sys; print(next(p for p in sys.path if p.startswith("/usr/local/")))')
    # In mounts of our own: the host's /usr/local stays as it is.
    cat >inside <<EOS
mkdir -p "$place" && mount -t tmpfs none "$place" && mkdir "$place/numpy" &&
echo '__version__ = "0.0.1"' >"$place/numpy/__init__.py" && chmod -R a+rX "$place" &&
"$FORGE" runtime list --json | jq -r '.[] | select(.name == "sci") | .digest' >digest.local &&
"$FORGE" run -q -r sci -- python3 -c 'import numpy; print(numpy.__version__)' >version
EOS
    unshare -m sh inside
    [ "$(cat digest.local)" != "$before" ]
    [ -n "$before" ]
    [ "$(digest sci)" = "$before" ]
}
