#!/usr/bin/env bats
# What a pipeline leaves: outputs, the report, old runs; and what a terminal shows meanwhile.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
setup() { setup_pipeline; }
teardown() { teardown_pipeline; }

@test "outputs: of the last steps, of those that are named, all or none" {
    three_steps
    run forge pipeline outputs
    [ "$status" -eq 1 ]
    says "count is not up to date"
    pipeline_run
    run forge pipeline outputs
    [[ "$output" == "count/n.json  "* ]]
    forge pipeline outputs --copy got --only upper --only count
    [ "$(cat got/upper/b/out.txt)" = WORLD ]
    [ "$(cat got/count/n.json)" = '{"lines": 3}' ]
    run forge pipeline outputs --copy got
    [ "$status" -eq 1 ]
    forge pipeline outputs --copy got --replace
    run forge pipeline outputs --json
    [ "$(jq -r '.[0].task' <<<"$output")" = count ]
}

@test "outputs: are those of the parameters that are given" {
    three_steps
    pipeline_run
    pipeline_run -p end='?'
    forge pipeline outputs --only join --copy now
    [ "$(tail -1 now/join/all.txt)" = '!' ]
    forge pipeline outputs -p end='?' --only join --copy other
    [ "$(tail -1 other/join/all.txt)" = '?' ]
}

@test "report: one page, well formed, with advice and without the text of others" {
    cat >pipeline.yaml <<'Y'
name: page
description: a <b>bold</b> claim
steps:
  small: {run: echo 1 >o, outputs: [o], limits: {memory: 4G}}
  bad: {inputs: {o: small/o}, run: exit 1}
Y
    pipeline_run || true
    forge pipeline report --copy page.html
    grep -q 'asked for 4.00 GiB of memory, used' page.html
    grep -q 'a &lt;b&gt;bold' page.html
    grep -q 'class="cached">cached' page.html
    grep -q '<td class="failed">failed</td>.*Failed: exit code 1' page.html
    # Nothing is loaded from anywhere.
    run grep -E 'src=|href=|@import|<script' page.html
    [ "$status" -eq 1 ]
    python3 - <<'PY'
from html.parser import HTMLParser
class Check(HTMLParser):
    stack = []
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "path", "rect"):
            self.stack.append(tag)
    def handle_endtag(self, tag):
        if tag in ("path", "rect"):
            return
        assert self.stack.pop() == tag, tag
c = Check()
c.feed(open("page.html").read())
assert not c.stack, c.stack
PY
}

@test "clean: removes what is no result any more, and nothing else" {
    three_steps
    pipeline_run
    pipeline_run -p end='?'
    [ "$(forge ps -aq | wc -l)" -eq 6 ]
    run forge pipeline clean </dev/null
    [ "$status" -eq 1 ]
    says "forge cannot ask"
    run forge pipeline clean -n
    [ "${#lines[@]}" -eq 2 ]
    run forge pipeline clean -y
    says "2 runs removed"
    pipeline_run
    [ "$(ran)" = "" ]
    run forge pipeline clean -y
    says "every run of this pipeline is the result of a step"
    pipeline_run -p end='?'
    [ "$(ran)" = "count join" ]
}

@test "quiet in a pipe: a table at the end, no lines in between" {
    three_steps
    forge pipeline run >out.txt 2>err.txt
    [ ! -s err.txt ]
    [ "$(head -1 out.txt | awk '{ print $1, $2, $3 }')" = "STEP STATE TIME" ]
    [ "$(grep -c ' done ' out.txt)" -eq 4 ]
    sed -i 's/cat $parts/false $parts/' pipeline.yaml
    run forge pipeline run -q
    [ "$status" -eq 1 ]
    says "failed join: Failed: exit code 1"
    says_not "STEP"
}

@test "on a terminal: a line for each step while it runs" {
    cat >pipeline.yaml <<Y
name: live
steps:
  slow: {run: 'until [ -e $T/gate/open ]; do sleep 0.05; done; echo >o', outputs: [o], limits: {memory: 1G}}
  after: {inputs: {o: slow/o}, run: "true"}
Y
    chmod 755 "$T/gate"
    configure 'host: {budget: {cpus: 64, memory: 64G}}' "read_only: [$T/gate]"
    script -qfec "forge pipeline run" typed >/dev/null 3>&- &
    shown=$!
    patiently grep -q 'slow .*running .*of 1.00 GiB' typed
    touch "$T/gate/open"
    wait "$shown"
    grep -q 'after *waiting' typed
    grep -q '2 ran, 0 up to date' typed
}
