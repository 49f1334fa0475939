# engines.bash: container engines of our own, for tests. A dockerd and a Podman service whose sockets, data and
# state are in one temporary directory; nothing is configured on the host, no network is made and no registry asked.
#
#   engines_missing         what this host lacks for them; nothing if it lacks nothing
#   engines_make            the directory and the images as tars; sets and exports FORGE_ENGINES
#   engine_start NAME       starts docker or podman (again); returns when it answers and has the images
#   engine_crash NAME       SIGKILL to the service; its containers may go on
#   engine NAME ARG...      its command line
#   engine_socket NAME      the path of its socket
#   containers NAME         the names of all containers it has
#   rootless_start UID      a Podman service of an ordinary user; sets rootless, its directory
#   as_rootless COMMAND...  as that user
#   engines_remove          ends whatever runs, and removes the directory
#
# Images, in both: "tiny" (busybox) and "py" (busybox and the host's Python).
#
# shellcheck shell=bash disable=SC2030,SC2031 # a PATH for the daemons only
# SPDX-License-Identifier: Apache-2.0

engines_missing() {
    local program missing=()
    [ "$(id -u)" -eq 0 ] || missing+=(root)
    for program in dockerd docker podman runc busybox curl; do
        PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || missing+=("$program")
    done
    echo "${missing[*]}"
}

engines_make() {
    # A short name: the path of a socket has 107 characters.
    FORGE_ENGINES=$(mktemp -d /tmp/forge-en-XXXXXX) || return
    export FORGE_ENGINES
    chmod 755 "$FORGE_ENGINES"
    mkdir "$FORGE_ENGINES/net"
    # Podman's own limits are beyond what root may set on some hosts, and crun 1.8 refuses hybrid cgroups. The
    # locks of all Podmans of a user would be one file in /dev/shm.
    cat >"$FORGE_ENGINES/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "none"
lock_type = "file"
[network]
network_config_dir = "$FORGE_ENGINES/net"
CONF
    make_tiny "$FORGE_ENGINES/tiny"
    cp -a "$FORGE_ENGINES/tiny" "$FORGE_ENGINES/py"
    add_python "$FORGE_ENGINES/py"
    pack tiny
    pack py
}

# make_tiny DIR: a root file system with every command of busybox.
make_tiny() {
    local name
    mkdir -p "$1"/{bin,proc,sys,dev,tmp,etc,root,run,var,usr/bin}
    # An engine gives a new /tmp the mode that the image's has. Everybody could write in the others of most images.
    mkdir "$1/var/tmp" "$1/opt"
    chmod 1777 "$1/tmp" "$1/var/tmp" "$1/opt"
    cp "$(command -v busybox)" "$1/bin/busybox"
    for name in $(busybox --list); do
        [ "$name" = busybox ] || ln -s busybox "$1/bin/$name"
    done
    echo 'root:x:0:0::/root:/bin/sh' >"$1/etc/passwd"
    echo 'root:x:0:' >"$1/etc/group"
}

# add_python DIR: the host's Python with its modules and their libraries.
add_python() {
    local lib
    lib=$(/usr/bin/python3 -c 'import os; print(os.path.dirname(os.__file__))')
    cp -L /usr/bin/python3 "$1/usr/bin/python3"
    mkdir -p "$1$lib"
    tar -C "$lib" --exclude=test --exclude=__pycache__ --exclude='config-*' --exclude=idlelib --exclude=tkinter \
        --exclude=lib2to3 --exclude=ensurepip --exclude=pydoc_data --exclude=dist-packages -cf - . |
        tar -C "$1$lib" -xf -
    ldd /usr/bin/python3 "$lib"/lib-dynload/*.so 2>/dev/null |
        awk '$2 == "=>" && $3 ~ "^/" { print $3 } $1 ~ "^/.*/ld-" { print $1 }' | sort -u |
        while read -r lib; do
            mkdir -p "$1${lib%/*}"
            cp -L "$lib" "$1$lib"
        done
}

# pack NAME: the tar of an image from its tree, which goes.
pack() {
    tar -C "$FORGE_ENGINES/$1" --numeric-owner --owner=0 --group=0 -cf "$FORGE_ENGINES/$1.tar" .
    rm -rf "${FORGE_ENGINES:?}/$1"
}

engine_socket() { echo "$FORGE_ENGINES/$1.sock"; }

engine() {
    local name=$1
    shift
    case $name in
    docker) HOME=$FORGE_ENGINES docker -H "unix://$(engine_socket docker)" "$@" ;;
    podman) (
        # The mark of an out-of-memory kill is put into the directory that conmon was started in.
        cd "$FORGE_ENGINES" || exit
        export CONTAINERS_CONF=$FORGE_ENGINES/containers.conf HOME=$FORGE_ENGINES
        exec podman --root "$FORGE_ENGINES/p.store" --runroot "$FORGE_ENGINES/p.run" \
            --tmpdir "$FORGE_ENGINES/p.tmp" --storage-driver "$(storage_driver)" "$@"
    ) ;;
    esac
}

# An overlay cannot lie on another one, as in a container.
storage_driver() {
    case $(stat -f -c %T "$FORGE_ENGINES") in
    overlayfs | UNKNOWN*) echo vfs ;;
    *) echo overlay ;;
    esac
}

serve_docker() {
    # Older ones would write a key into /etc/docker.
    case $(dockerd --version) in
    *"version 20."*) printf '{"deprecated-key-path": "%s/key.json"}\n' "$FORGE_ENGINES" ;;
    *) echo '{}' ;;
    esac >"$FORGE_ENGINES/daemon.json"
    exec dockerd --config-file "$FORGE_ENGINES/daemon.json" --data-root "$FORGE_ENGINES/d.data" \
        --exec-root "$FORGE_ENGINES/d.exec" --pidfile "$FORGE_ENGINES/docker.lock" \
        --cgroup-parent "/${FORGE_ENGINES##*/}" -H "unix://$(engine_socket docker)" \
        --iptables=false --ip6tables=false --bridge=none
}

serve_podman() { engine podman system service --time=0 "unix://$(engine_socket podman)"; }

engine_start() {
    local image pid deadline=$((SECONDS + 60))
    # A dead containerd that nobody has buried yet would pass for a running one.
    [ "$1" = podman ] || rm -f "$FORGE_ENGINES/docker.lock" "$FORGE_ENGINES/d.exec/containerd/containerd.pid"
    rm -f "$(engine_socket "$1")"
    (
        PATH=$PATH:/usr/sbin:/sbin
        exec 3>&- 4>&-
        "serve_$1"
    ) </dev/null >>"$FORGE_ENGINES/$1.log" 2>&1 &
    pid=$!
    echo "$pid" >"$FORGE_ENGINES/$1.pid"
    until curl -sf --unix-socket "$(engine_socket "$1")" http://engine/v1.41/_ping >/dev/null; do
        if [ "$SECONDS" -lt "$deadline" ] && kill -0 "$pid"; then
            read -rt 0.05 <> <(:) || true
            continue
        fi
        tail -n 20 "$FORGE_ENGINES/$1.log" >&2
        return 1
    done
    for image in tiny py; do
        [ ! -e "$FORGE_ENGINES/$1.$image" ] || continue
        engine "$1" import "$FORGE_ENGINES/$image.tar" "$image" >"$FORGE_ENGINES/$1.$image" 2>&1 ||
            { cat "$FORGE_ENGINES/$1.$image" >&2; return 1; }
    done
}

# Docker's containerd is a service of its own; what it supervises goes on without both.
engine_crash() {
    local pid pids
    pids=$(<"$FORGE_ENGINES/$1.pid")
    if [ "$1" = docker ]; then
        pids="$pids $(cat "$FORGE_ENGINES/d.exec/containerd/containerd.pid" 2>/dev/null || true)"
    else
        pids="$pids $(children_of "$pids")"
    fi
    for pid in $pids; do
        kill -KILL "$pid" 2>/dev/null || true # it went by itself
    done
    for pid in $pids; do
        while [ -e "/proc/$pid" ] && ! grep -q '^State:.[ZX]' "/proc/$pid/status" 2>/dev/null; do
            read -rt 0.02 <> <(:) || true
        done
    done
}

# Podman runs in a subshell of ours.
children_of() { cat "/proc/$1/task/$1/children" 2>/dev/null || true; }

containers() { engine "$1" ps -a --format '{{.Names}}'; }

# The user has a name and subordinate ids in a mount namespace of the service's own: the files of the host stay as
# they are.
rootless_start() {
    local deadline=$((SECONDS + 60)) file
    rootless=$FORGE_ENGINES/rootless
    mkdir -m 755 "$rootless"
    mkdir "$rootless"/{home,run,tmp,forge,work}
    for file in passwd group; do
        cp "/etc/$file" "$rootless/$file"
    done
    echo "rootless:x:$1:$1::$rootless/home:/bin/sh" >>"$rootless/passwd"
    echo "rootless:x:$1:" >>"$rootless/group"
    echo "rootless:200000:65536" | tee "$rootless/subuid" >"$rootless/subgid"
    grep -v -e network "$FORGE_ENGINES/containers.conf" >"$rootless/containers.conf"
    cat >"$rootless/enter" <<ENTER
for file in passwd group subuid subgid; do mount --bind "$rootless/\$file" "/etc/\$file" || exit; done
cd "$rootless/home"
exec setpriv --reuid "$1" --regid "$1" --clear-groups env -i PATH="$PATH" HOME="$rootless/home" \
    XDG_RUNTIME_DIR="$rootless/run" CONTAINERS_CONF="$rootless/containers.conf" "\$@"
ENTER
    cp "$FORGE_ENGINES/tiny.tar" "$rootless/"
    chown -R "$1:$1" "$rootless"
    chmod 700 "$rootless"/{home,run,forge,work}
    rootless_podman import "$rootless/tiny.tar" tiny >"$rootless/log" 2>&1 || { cat "$rootless/log" >&2; return 1; }
    rootless_podman system service --time=0 "unix://$rootless/podman.sock" </dev/null >>"$rootless/log" 2>&1 3>&- 4>&- &
    until curl -sf --unix-socket "$rootless/podman.sock" http://engine/v1.41/_ping >/dev/null; do
        [ "$SECONDS" -lt "$deadline" ] || { cat "$rootless/log" >&2; return 1; }
        read -rt 0.05 <> <(:) || true
    done
}

as_rootless() { unshare -m --propagation private bash "$rootless/enter" "$@"; }

rootless_podman() {
    as_rootless podman --root "$rootless/store" --runroot "$rootless/rr" --tmpdir "$rootless/tmp" --storage-driver vfs "$@"
}

# Every process that works for this directory, wherever its parent has gone: all name it.
engine_pids() {
    local dir
    for dir in /proc/[0-9]*; do
        [ "${dir#/proc/}" != $$ ] || continue
        # Podman's process that holds a user's namespace open names it only in its environment, and so do ours.
        if grep -qsF -- "$FORGE_ENGINES/" "$dir/cmdline" ||
            { grep -qsxF podman "$dir/comm" && grep -qsF -- "$FORGE_ENGINES/" "$dir/environ"; }; then
            echo "${dir#/proc/}"
        fi
    done
}

engines_remove() {
    local name pid mount dir
    [ -n "${FORGE_ENGINES:-}" ] || return 0
    for name in docker podman; do
        [ -e "$FORGE_ENGINES/$name.pid" ] || continue
        engine_crash "$name"
    done
    for pid in $(engine_pids); do
        kill -KILL "$pid" 2>/dev/null || true
    done
    # What a container still ran is in its cgroup.
    for dir in /sys/fs/cgroup/*/"${FORGE_ENGINES##*/}" "/sys/fs/cgroup/${FORGE_ENGINES##*/}"; do
        [ -d "$dir" ] || continue
        find "$dir" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r pid; do
            kill -KILL "$pid" 2>/dev/null || true
        done
        find "$dir" -depth -type d -exec rmdir {} ';' 2>/dev/null || true
    done
    while read -r mount; do
        umount -l "$mount" 2>/dev/null || true
    done < <(awk -v d="$FORGE_ENGINES/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | tac)
    rm -rf "$FORGE_ENGINES"
    unset FORGE_ENGINES
}
