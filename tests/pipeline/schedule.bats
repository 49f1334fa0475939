#!/usr/bin/env bats
# Which step starts when there are fewer places than steps: the longest chain first, and no pipeline waits for another.
# SPDX-License-Identifier: Apache-2.0

load ../lib/pipeline.bash
setup() { setup_pipeline; }
teardown() { teardown_pipeline; }

# starts: "TIME PIPELINE TASK" of every run in the store, in the order of their starts.
starts() { forge ps -aq | while read -r id; do forge show --json "$id"; done | jq -r '"\(.started_at) \(.step.pipeline) \(.step.task)"' | sort; }

@test "with one place, the step with the longest chain behind it starts first" {
    cat >pipeline.yaml <<'Y'
name: chains
steps:
  alone1: {run: echo alone1 >o, outputs: [o]}
  two1: {run: echo two1 >o, outputs: [o]}
  two2: {inputs: {o: two1/o}, run: "cat $o >o; echo two2 >>o", outputs: [o]}
  alone2: {run: echo alone2 >o, outputs: [o]}
  four1: {run: echo four1 >o, outputs: [o]}
  four2: {inputs: {o: four1/o}, run: "cat $o >o; echo four2 >>o", outputs: [o]}
  four3: {inputs: {o: four2/o}, run: "cat $o >o; echo four3 >>o", outputs: [o]}
  four4: {inputs: {o: four3/o}, run: "cat $o >o; echo four4 >>o", outputs: [o]}
Y
    pipeline_run -j 1
    order=$(starts | cut -d' ' -f3 | xargs)
    [ "$order" = "$(jq -r 'select(.event == "started") | .task' run.json | xargs)" ]
    # Chains of 4 and 3, then the two of 2, then what has nothing behind it.
    [ "$(cut -d' ' -f1,2 <<<"$order")" = "four1 four2" ]
    [ "$(cut -d' ' -f3,4 <<<"$order" | tr ' ' '\n' | sort | xargs)" = "four3 two1" ]
    [ "$(cut -d' ' -f5- <<<"$order" | tr ' ' '\n' | sort | xargs)" = "alone1 alone2 four4 two2" ]
}

@test "two pipelines on a full host: both go on, and neither waits for the other's end" {
    configure 'host:' '  budget:' '    cpus: 2' '    memory: 64G'
    for p in first second; do
        mkdir -m 755 "$p"
        printf 'name: %s\nsteps: {a: {foreach: {i: [%s]}, run: "sleep 0.1; echo %s $i >o", outputs: [o]}}' "$p" "$(seq -s, 40)" "$p" >"$p/pipeline.yaml"
    done
    forge pipeline run -q first 3>&- &
    one=$!
    patiently is_running 2
    forge pipeline run -q second 3>&- &
    two=$!
    ended "$one"
    [ "$status" -eq 0 ]
    ended "$two"
    [ "$status" -eq 0 ]
    starts | cut -d' ' -f2 >order
    [ "$(wc -l <order)" -eq 80 ]
    # While both have steps to start: a head has 6 runs at most, two for each place and two more, and the queue of the
    # host is in the order of arrival. Twice as many in a row leave room for a head that was slow to refill the queue.
    awk '{ n[$1]++; run = $1 == last ? run + 1 : 1; last = $1; seen[$1] = 1
           if (seen["first"] && seen["second"] && n["first"] < 40 && n["second"] < 40 && run > most) most = run }
         END { print most > "/dev/stderr"; exit !(most >= 1 && most <= 12) }' order
    # The second one began when the first had had its six, not when it was done.
    [ "$(grep -n second order | head -1 | cut -d: -f1)" -le 20 ]
    # And when the first one was done, the second had had its part.
    last=$(grep -n first order | tail -1 | cut -d: -f1)
    [ "$(head -n "$last" order | grep -c second)" -ge 20 ]
}

@test "a scatter of 500 steps and a step that reads all of them" {
    printf 'name: wide\nsteps: {a: {foreach: {i: [%s]}, run: "echo $i >out", outputs: [out]}, all: {inputs: {o: a/out}, run: "cat $o/*/out | sort -n >list", outputs: [list]}}' "$(seq -s, 500)" >pipeline.yaml
    pipeline_run
    [ "$(count "done")" -eq 501 ]
    [ "$(output_of all list)" = "$(seq 500)" ]
    [ "$(forge ps -aq --status succeeded | wc -l)" -eq 501 ]
    pipeline_run
    [ "$(count cached)" -eq 501 ]
}
