# tap.sh: TAP for plain sh scripts, to be sourced. One check a line; done_testing at the end.
# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
tap_n=0
tap_failed=0

# ok NAME COMMAND...: the command decides. Its output is shown only when it fails.
ok() {
    tap_name=$1
    shift
    tap_n=$((tap_n + 1))
    if tap_out=$("$@" 2>&1); then
        echo "ok $tap_n $tap_name"
        return 0
    fi
    tap_failed=$((tap_failed + 1))
    echo "not ok $tap_n $tap_name"
    printf '%s\n' "$tap_out" "failed: $*" | sed 's/^/# /'
    return 1
}

# is NAME GOT WANTED
is() {
    tap_n=$((tap_n + 1))
    if [ "$2" = "$3" ]; then
        echo "ok $tap_n $1"
        return 0
    fi
    tap_failed=$((tap_failed + 1))
    echo "not ok $tap_n $1"
    printf 'got: %s\nwanted: %s\n' "$2" "$3" | sed 's/^/# /'
    return 1
}

skip() {
    tap_n=$((tap_n + 1))
    echo "ok $tap_n $1 # skip $2"
}

note() { printf '# %s\n' "$*"; }

done_testing() {
    echo "1..$tap_n"
    [ "$tap_failed" -eq 0 ]
}
