#!/usr/bin/env bats
# forge setup on a directory that stands for a host (--root): what is written, that nothing is written twice,
# and that --undo takes back what is still as it was written. What it does to a live host: tests/guest/.

setup() {
    : "${FORGE:?set FORGE to the program under test}"
    bats_require_minimum_version 1.5.0
    FORGE=$(realpath "$FORGE") HOME=$BATS_TEST_TMPDIR
    export FORGE HOME
    unset FORGE_CONFIG
    cd "$BATS_TEST_TMPDIR" || return
    # A host with everything in the way.
    mkdir -p host/etc host/proc/sys/user host/proc/sys/kernel host/run/systemd/system
    printf 'root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n' \
        >host/etc/passwd
    echo 0 >host/proc/sys/user/max_user_namespaces
    echo 9 >host/proc/sys/user/max_net_namespaces
    echo 0 >host/proc/sys/kernel/unprivileged_userns_clone
    echo 1 >host/proc/sys/kernel/apparmor_restrict_unprivileged_userns
}

# set_up OPTION...: on that host.
set_up() { run --separate-stderr "$FORGE" setup --root host "$@"; }

# state ACTION: of the last --json report.
state() { jq -r --arg name "$1" '.actions[] | select(.name == $name) | .state' <<<"$output"; }

files() { (cd host && find . -type f ! -path './proc/*' | sort | xargs); }

@test "--dry-run says what it would do and writes nothing" {
    before=$(find host | sort)
    set_up --user alice --dry-run --json
    [ "$status" -eq 0 ]
    [ "$(state sysctl)" = "to do" ]
    [ "$(state apparmor)" = "to do" ]
    [ "$(state delegation)" = "to do" ]
    [ "$(jq -r '.actions[].files[]' <<<"$output" | sort | xargs)" = \
        "/etc/apparmor.d/forge /etc/sysctl.d/60-forge.conf /etc/systemd/system/user@.service.d/forge.conf /var/lib/systemd/linger/alice" ]
    [ "$(find host | sort)" = "$before" ]
}

@test "it writes what is in the way, for root and for the named user" {
    set_up --user alice
    [ "$status" -eq 0 ]
    [[ "$output" == *"sysctl         made"* ]]
    [ "$(grep -v '^#' host/etc/sysctl.d/60-forge.conf | xargs)" = \
        "user.max_user_namespaces = 15000 kernel.unprivileged_userns_clone = 1" ]
    grep -qF "profile forge \"$FORGE\"" host/etc/apparmor.d/forge
    grep -q '^  userns,$' host/etc/apparmor.d/forge
    grep -q '^Delegate=cpu memory pids io$' host/etc/systemd/system/user@.service.d/forge.conf
    [ -e host/var/lib/systemd/linger/alice ]
    [ "$(stat -c %a host/etc/sysctl.d/60-forge.conf)" = 644 ]
}

@test "without users only what root needs is written" {
    set_up
    [ "$status" -eq 0 ]
    [ "$(files)" = "./etc/forge/setup.json ./etc/passwd ./etc/sysctl.d/60-forge.conf" ]
    [ "$(grep -c = host/etc/sysctl.d/60-forge.conf)" -eq 1 ]
}

@test "a host with nothing in the way stays as it is" {
    rm -r host/proc
    set_up --json
    [ "$status" -eq 0 ]
    [ "$(state sysctl)" = "not needed" ]
    [ "$(files)" = ./etc/passwd ]
}

@test "the second time nothing is done, and a user more is added to those there are" {
    set_up --user alice
    before=$(cd host && find . -type f -printf '%p %T@ %i\n' | sort)
    set_up --user alice --json
    [ "$status" -eq 0 ]
    [ "$(state sysctl)" = "done" ]
    [ "$(state apparmor)" = "done" ]
    [ "$(state delegation)" = "done" ]
    [ "$(cd host && find . -type f -printf '%p %T@ %i\n' | sort)" = "$before" ]
    set_up --user bob --json
    [ "$(state delegation)" = made ]
    [ -e host/var/lib/systemd/linger/alice ]
    [ -e host/var/lib/systemd/linger/bob ]
    # Values that it has put right itself stay written down.
    echo 15000 >host/proc/sys/user/max_user_namespaces
    echo 1 >host/proc/sys/kernel/unprivileged_userns_clone
    set_up --json
    [ "$(state sysctl)" = "done" ]
    [ "$(grep -c = host/etc/sysctl.d/60-forge.conf)" -eq 2 ]
}

@test "--undo takes back exactly what was made" {
    before=$(find host | sort)
    set_up --user alice
    set_up --undo --dry-run --json
    [ "$status" -eq 0 ]
    [ "$(state sysctl)" = "to do" ]
    [ -e host/etc/sysctl.d/60-forge.conf ]
    set_up --undo --json
    [ "$status" -eq 0 ]
    [ "$(state sysctl)" = removed ]
    [ "$(find host | sort)" = "$before" ]
    set_up --undo --json
    [ "$status" -eq 0 ]
    [ "$(state sysctl)" = "not needed" ]
}

@test "--undo leaves what somebody has changed or put there, and says so" {
    set_up --user alice
    echo '# mine' >>host/etc/sysctl.d/60-forge.conf
    echo x >host/etc/systemd/system/user@.service.d/other.conf
    set_up --undo --json
    [ "$status" -eq 0 ]
    [ "$(state sysctl)" = left ]
    [[ "$output" == *"60-forge.conf was changed by hand and is left"* ]]
    [ "$(state delegation)" = removed ]
    [ "$(files)" = "./etc/forge/setup.json ./etc/passwd ./etc/sysctl.d/60-forge.conf ./etc/systemd/system/user@.service.d/other.conf" ]
}

@test "a file that is not forge's is left, by setup and by --undo" {
    mkdir -p host/etc/apparmor.d host/var/lib/systemd/linger
    echo 'profile forge /opt/forge { userns, }' >host/etc/apparmor.d/forge
    touch host/var/lib/systemd/linger/alice
    set_up --user alice --json
    [ "$status" -eq 0 ]
    [ "$(state apparmor)" = left ]
    [[ "$output" == *"/etc/apparmor.d/forge is not forge's, left as it is"* ]]
    # What would serve it is not written either.
    mkdir -p host/etc/systemd/system/user@.service.d
    echo '[Service]' >host/etc/systemd/system/user@.service.d/forge.conf
    rm host/etc/forge/setup.json
    set_up --user bob --json
    [ "$(state delegation)" = left ]
    [ ! -e host/var/lib/systemd/linger/bob ]
    set_up --undo
    [ "$status" -eq 0 ]
    [ "$(cat host/etc/apparmor.d/forge)" = 'profile forge /opt/forge { userns, }' ]
    [ -e host/var/lib/systemd/linger/alice ]
}

@test "what somebody changed after setup is not written over" {
    set_up
    echo 'user.max_user_namespaces = 7' >host/etc/sysctl.d/60-forge.conf
    set_up --json
    [ "$status" -eq 0 ]
    [ "$(state sysctl)" = left ]
    [ "$(cat host/etc/sysctl.d/60-forge.conf)" = 'user.max_user_namespaces = 7' ]
}

@test "without systemd a script makes the users' cgroups at boot, and PAM moves sessions there" {
    rm -r host/run
    mkdir -p host/usr/share/pam-configs
    set_up --user alice --user bob
    [ "$status" -eq 0 ]
    grep -qx "users='alice bob'" host/etc/init.d/forge-cgroups
    [ "$(stat -c %a host/etc/init.d/forge-cgroups)" = 755 ]
    sh -n host/etc/init.d/forge-cgroups
    grep -q 'pam_exec.so .*/etc/init.d/forge-cgroups enter' host/usr/share/pam-configs/forge
    [ ! -e host/etc/systemd ]
    if command -v shellcheck >/dev/null; then
        shellcheck host/etc/init.d/forge-cgroups
    fi
}

@test "a setup that was cut short while it replaced a file is taken back too" {
    rm -r host/run
    set_up --user alice
    cp -p host/etc/init.d/forge-cgroups old
    set_up --user bob
    # The manifest comes first, so this is what a crash before the file is written leaves.
    jq --arg old "sha256:$(sha256sum <old | cut -d' ' -f1)" \
        '.rows.delegation.files["/etc/init.d/forge-cgroups"] |= [$old, .]' host/etc/forge/setup.json >both
    cat both >host/etc/forge/setup.json
    cp -p old host/etc/init.d/forge-cgroups
    cp -r host again
    # Again makes it whole, and undo removes either.
    run "$FORGE" setup --root again --json
    [ "$(state delegation)" = made ]
    grep -qx "users='alice bob'\|users='bob alice'" again/etc/init.d/forge-cgroups
    set_up --undo --json
    [ "$(state delegation)" = removed ]
    [ ! -e host/etc/init.d ]
}

@test "a user that does not exist, or is root, or no name, is an error and nothing is written" {
    for name in nobody-here root "a'b" ../x ''; do
        set_up --user "$name"
        [ "$status" -eq 1 ]
        [[ "$stderr" == "forge: delegation: --user: "* ]]
    done
    [ ! -e host/etc/systemd ]
}

@test "user ids that are taken are named, and the exit status says so" {
    echo 'carol:1879048000:65536' >host/etc/subuid
    set_up --json
    [ "$status" -eq 1 ]
    [ "$(state uids)" = cannot ]
    [[ "$output" == *"taken by carol in /etc/subuid"*"sandbox.uid_base"* ]]
    echo 'x:x:1879048200:1::/:/bin/sh' >>host/etc/passwd
    rm host/etc/subuid
    set_up --json
    [ "$status" -eq 1 ]
    [[ "$output" == *"taken by x in /etc/passwd"* ]]
    sed -i '$d' host/etc/passwd
    set_up --json
    [ "$status" -eq 0 ]
    [ "$(state uids)" = "not needed" ]
}

@test "a place for workdirs: mounted at boot, and the configuration names it" {
    set_up --workdir-quota 1G --workdir-dir /srv/forge-work
    [ "$status" -eq 0 ]
    unit='host/etc/systemd/system/srv-forge\x2dwork.mount'
    grep -qx 'What=/srv/forge-work.img' "$unit"
    grep -qx 'Options=loop,prjquota,nosuid,nodev' "$unit"
    [ "$("$FORGE" config show --config host/etc/forge/forge.yaml | grep -c '/srv/forge-work/{id}')" -eq 1 ]
    set_up --undo
    [ "$status" -eq 0 ]
    [ ! -e host/etc/forge ]
    set_up --workdir-quota 1X
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"--workdir-quota"* ]]
    set_up --workdir-quota 10M
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"320M or more"* ]]
}

@test "a configuration that is there is not changed for it" {
    mkdir -p host/etc/forge
    echo 'workdir: /elsewhere/{id}' >host/etc/forge/forge.yaml
    set_up --workdir-quota 1G --json
    [ "$(state workdir-quota)" = left ]
    [ "$(cat host/etc/forge/forge.yaml)" = 'workdir: /elsewhere/{id}' ]
}

@test "a manifest that cannot be read stops everything" {
    mkdir -p host/etc/forge
    echo '{' >host/etc/forge/setup.json
    set_up --user alice
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"setup.json cannot be read"* ]]
    [ ! -e host/etc/sysctl.d ]
}

@test "one setup at a time" {
    mkdir -p host/etc/forge
    exec 8>host/etc/forge/setup.lock
    flock 8
    for option in --json --undo; do
        set_up "$option" 8>&-
        [ "$status" -eq 1 ]
        [[ "$stderr" == "forge: another forge setup is running"* ]]
    done
    [ ! -e host/etc/sysctl.d ]
    # Looking is always possible.
    set_up --dry-run 8>&-
    [ "$status" -eq 0 ]
    # The file alone, of one that was killed, is in nobody's way.
    exec 8>&-
    set_up
    [ "$status" -eq 0 ]
    [ ! -e host/etc/forge/setup.lock ]
    set_up --undo
    [ "$status" -eq 0 ]
    [ ! -e host/etc/forge ]
}

@test "setups at the same time lose nothing of one another" {
    for i in $(seq 10 25); do echo "u$i:x:20$i:20$i::/:/bin/sh"; done >>host/etc/passwd
    for i in $(seq 10 25); do
        "$FORGE" setup --root host --user "u$i" >"out.$i" 2>&1 3>&- &
    done
    wait
    for i in $(seq 10 25); do
        if ! grep -q 'another forge setup is running' "out.$i"; then
            [ "$(jq --arg u "u$i" '.users | index($u) != null' host/etc/forge/setup.json)" = true ]
            [ "$(jq --arg u "u$i" '.rows.delegation.files | has("/var/lib/systemd/linger/" + $u)' host/etc/forge/setup.json)" = true ]
        fi
    done
    [ "$(jq '.users | length' host/etc/forge/setup.json)" -ge 1 ]
}

@test "only root can set up the host itself" {
    [ "$(id -u)" -eq 0 ] || skip "needs root to become another user"
    cp "$FORGE" /tmp/forge-setup-$$
    chmod 755 /tmp/forge-setup-$$
    cd /
    HOME=/ run setpriv --reuid 65534 --regid 65534 --clear-groups /tmp/forge-setup-$$ setup
    rm /tmp/forge-setup-$$
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"only root can set up a host"*"sudo forge setup"* ]]
}

@test "a --root that is not there is an error" {
    run "$FORGE" setup --root nowhere
    [ "$status" -eq 1 ]
    [[ "$output" == *"--root nowhere: No such file"* ]]
}
