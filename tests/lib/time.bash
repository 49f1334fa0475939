# time.bash: bounds on durations that hold on a busy machine too.
# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0

now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }

# slack_ms: what a machine that has much else to do may take more: as long as 20 runs of nothing take just
# now. On a quiet one that is less than a second.
slack_ms() {
    local began
    began=$(now_ms)
    (
        unset FORGE_STORE
        echo 'version: 1' >"$BATS_TEST_TMPDIR/slack.yaml"
        FORGE_HOME=$BATS_TEST_TMPDIR/slack FORGE_CONFIG=$BATS_TEST_TMPDIR/slack.yaml "$FORGE" run -q true
    ) >/dev/null 2>&1 </dev/null 3>&- || true
    echo $((20 * ($(now_ms) - began)))
}

# in_time BEGAN MSEC: since then no more has passed than that, and the slack.
in_time() {
    local took=$(($(now_ms) - $1)) most
    [ "$took" -ge "$2" ] || return 0
    most=$(($2 + $(slack_ms)))
    echo "$took ms of $2, with slack $most"
    [ "$took" -lt "$most" ]
}
