#!/usr/bin/env bats
# Slurm: what a cluster does that a single machine does not. Its commands fail or hang, its controller forgets jobs and
# gives their numbers away, its nodes die or are only thought to be dead, and it starts jobs twice. Whatever happens,
# a run is carried out at most once and gets one verdict, and nothing stays behind.
# SPDX-License-Identifier: Apache-2.0

load ../lib/executor.bash

setup_file() { setup_cluster; }
teardown_file() { remove_cluster; }
setup() {
    setup_executor slurm
    others=()
}
teardown() {
    [ -n "${T:-}" ] || return 0 # it was skipped
    slurm_mend
    [ ${#others[@]} -eq 0 ] || slurm scancel "${others[@]}"
    teardown_executor
}

# jobs_of RUN: the numbers of all jobs of this run that Slurm knows.
jobs_of() { slurm squeue -h -t all -n "forge-$1" -o %i; }
state_of() { slurm squeue -h -t all -j "$1" -o %T; }
has_state() { [ "$(state_of "$1")" = "$2" ]; }
is_over() { [[ "$(state_of "$1")" =~ ^(COMPLETED|FAILED|CANCELLED|NODE_FAIL|OUT_OF_MEMORY)$ ]]; }
# node_of RUN: 1, 2 or 3.
node_of() {
    local node
    node=$(slurm squeue -h -t all -n "forge-$1" -o %N)
    echo "${node##*-}"
}
# queue OPTION... -- COMMAND...: submits a run; returns when Slurm has its job. forge submit does not wait for that.
queue() {
    submit "$@"
    patiently has_job "$id"
}
has_job() { [ -n "$(jobs_of "$1")" ]; }
# events RUN NAME: how many of these there are.
events() { "$FORGE" logs --events "$1" | jq -s --arg n "$2" 'map(select(.event == $n)) | length'; }
has_event() { [ "$(events "$1" "$2")" -gt 0 ]; }
# node_process RUN: forge on the node, as this host sees it.
node_process() { pgrep -of "__node $shared/$1.job"; }

# refused TEXT...: the last run was never started, and its sentence or the hint has all of that.
refused() {
    local text
    [ "$status" -eq 125 ]
    [ "$(field .status)" = rejected ]
    [ "$(field .started_at)" = null ]
    for text; do
        grep -qF -- "$text" <(field .completion_notes) "$err"
    done
}

# lost TEXT...
lost() {
    local text
    [ "$(field .status)" = lost ]
    [ "$(field .reason)" = host_lost ]
    for text; do
        [[ "$(field .completion_notes)" == *"$text"* ]]
    done
}

# held: jobs that wait until they are released.
hold() { declare_cluster "options: [--hold]" "$@"; }
release() { slurm scontrol release "$1"; }

# impatient [ROW]...: commands of Slurm give up after 2 s.
impatient() {
    sed '$aMessageTimeout=2' "$FORGE_SLURM/slurm.conf" >"$T/slurm.conf"
    declare_cluster "slurm_conf: $T/slurm.conf" "$@"
}

# fake COMMAND SCRIPT: stands for a command of Slurm; $real is the real one.
fake() {
    mkdir -p "$T/bin"
    printf '#!/bin/bash\nreal=%q\n%s\n' "$(command -v "$1")" "$2" >"$T/bin/$1"
    chmod +x "$T/bin/$1"
    [[ "$PATH" == "$T/bin:"* ]] || PATH=$T/bin:$PATH
}

# hide DIR...: no node has anything there.
hide() {
    local n dir
    for n in 1 2 3; do
        for dir; do
            slurm_in_node "$n" mount -t tmpfs none "$dir"
        done
    done
}
unhide() {
    local n
    for n in 1 2 3; do
        slurm_in_node "$n" umount "$1"
    done
}

# other_job: one that is none of forge's; teardown ends it.
other_job() { others+=("$(slurm sbatch --parsable -J other --hold --wrap true -o /dev/null)"); }

# swept: forge on a node was killed, and could not remove its cgroups. The next run on that node does.
swept() {
    local n rows=("${cluster_rows[@]}")
    for n in 1 2 3; do
        # Slurm drains a node on which it finds a job that it has forgotten.
        slurm scontrol update nodename="$(slurm_node "$n")" state=RESUME 2>/dev/null || true
        declare_cluster "options: [--nodelist=$(slurm_node "$n")]" "max_pending: 20s"
        "$FORGE" run -q --executor slurm -- true
    done
    declare_cluster "${rows[@]}"
    [ -z "$(groups_left)" ]
}
# groups_left: of the runs of this test, one a line.
groups_left() {
    local run
    for run in "$FORGE_HOME"/runs/*/; do
        find "${cgroup_dirs[@]}" -maxdepth 1 -name "forge-$(basename "$run")"
    done
    slurm_cgroups
}

# ---- what is submitted

@test "partition, account and options reach sbatch" {
    declare_cluster "partition: other" "account: team" "options: [--comment=of-the-site, --nice=7, --hold]"
    queue -- true
    slurm scontrol show job -o "$(jobs_of "$id")" >shown
    for text in Partition=other Account=team Comment=of-the-site Nice=7 Requeue=0; do
        grep -qF " $text " shown
    done
    "$FORGE" kill "$id"
}

@test "limits of a run are those of its job, with room for forge" {
    hold
    queue --cpus 1.5 --memory 1G --timeout 90s --grace 5s -- true
    slurm scontrol show job -o "$(jobs_of "$id")" >shown
    for text in CPUs/Task=2 MinMemoryNode=1088M TimeLimit=00:03:00; do
        grep -qF " $text " shown
    done
    "$FORGE" kill "$id"
}

@test "variables of Slurm in the environment change nothing, and no variable of the caller gets into a job" {
    export SBATCH_PARTITION=nosuch SLURM_TIME_FORMAT=relative SQUEUE_FORMAT=%i SECRET_TOKEN=sesame-$$
    forge_run -- true
    [ "$status" -eq 0 ]
    run grep -rqF "sesame-$$" "$FORGE_SLURM/state"
    [ "$status" -eq 1 ]
}

@test "a partition that there is not is refused by its name" {
    declare_cluster "partition: nosuch"
    forge_run -- true
    refused "Invalid partition"
    run "$FORGE" executor list
    [[ "$output" == *slurm* ]]
}

@test "an input that contains the shared directory is refused, and one inside it" {
    forge_run -i "$FORGE_SLURM" -- true
    [ "$status" -eq 125 ]
    grep -qF "overlaps executors.slurm.dir" "$err" "$record"
    mkdir -p "$shared/x"
    forge_run -i "$shared/x" -- true
    [ "$status" -eq 125 ]
    grep -qF "overlaps executors.slurm.dir" "$err" "$record"
    rmdir "$shared/x"
}

@test "without the commands of Slurm a run is refused, and they are named" {
    mkdir none
    status=0
    PATH=$T/none "$FORGE" run --json "${OPTS[@]}" -- true >"$record" 2>"$err" || status=$?
    refused "sbatch is not installed" "PATH"
}

@test "a controller that is down: refused with Slurm's words" {
    slurm_end_controller
    forge_run -- true
    slurm_start_controller
    refused "Unable to contact slurm controller"
}

@test "an sbatch that dies after it has submitted: the run is found, and carried out once" {
    fake sbatch '"$real" "$@" >/dev/null; kill -KILL $$'
    forge_run -- echo once
    verdict succeeded exit 0
    [ "$(cat "$out")" = once ]
    [ "$(jobs_of "$(field .run_id)" | wc -l)" -eq 1 ]
    [ "$(events "$(field .run_id)" submit_unclear)" -eq 1 ]
}

@test "an sbatch that dies before it has submitted: refused in the end" {
    fake sbatch 'kill -KILL $$'
    declare_cluster "max_lag: 1s"
    forge_run -- true
    refused sbatch
}

@test "a controller that hangs while a run is submitted: carried out once" {
    impatient "max_lag: 60s"
    slurm_stop_controller
    background "$FORGE" run --json "${OPTS[@]}" -- echo once >"$record"
    unclear() { grep -qs submit_unclear "$FORGE_HOME"/runs/*/events.jsonl; }
    patiently unclear
    slurm_continue_controller
    status=0
    wait "$pid" || status=$?
    verdict succeeded exit 0
    [ "$(cat "$(field .logs.stdout)")" = once ]
    [ "$(jobs_of "$(field .run_id)" | wc -l)" -eq 1 ]
}

@test "a run that was given up because its controller hung does nothing when its job comes after all" {
    impatient "max_lag: 1s"
    slurm_stop_controller
    forge_run -- true
    slurm_continue_controller
    refused sbatch
    patiently has_job "$(field .run_id)"
    patiently is_over "$(jobs_of "$(field .run_id)")"
    has_state "$(jobs_of "$(field .run_id)")" FAILED
    [ -z "$(ls "$shared")" ]
}

# ---- pending

@test "ps shows why Slurm does not start a run, and a pending one can be killed" {
    hold
    queue -- true
    pending() { "$FORGE" ps | grep -q "^$id .*JobHeldUser"; }
    patiently pending
    job=$(jobs_of "$id")
    has_state "$job" PENDING
    other_job
    run "$FORGE" kill "$id"
    [ "$status" -eq 0 ]
    finished "$id"
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
    patiently has_state "$job" CANCELLED
    has_state "${others[0]}" PENDING
}

@test "a run that is pending for too long is cancelled with Slurm's reason, also one that no node can ever take" {
    hold "max_pending: 2s"
    queue -- true
    first=$id
    declare_cluster "max_pending: 2s"
    queue --cpus 64 -- true
    finished "$first"
    [ "$status" -eq 125 ]
    [ "$(field .status)" = cancelled ]
    [ "$(field .reason)" = admission ]
    [[ "$(field .completion_notes)" == *JobHeldUser* ]]
    finished "$id"
    [ "$(field .status)" = cancelled ]
    [ "$(field .reason)" = admission ]
    [[ "$(field .completion_notes)" == *PartitionConfig* ]]
    # In the foreground, too.
    forge_run --cpus 64 -- true
    [ "$status" -eq 125 ]
    [[ "$(field .completion_notes)" == *PartitionConfig* ]]
}

@test "a job that an administrator cancels: pending, and running" {
    hold
    queue -- true
    first=$id
    declare_cluster
    start
    slurm scancel "$(jobs_of "$first")" "$(jobs_of "$id")"
    finished "$first"
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
    finished "$id"
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
}

# ---- a controller that crashes

@test "a controller that forgets a run: lost, and the job that has its number now is not touched" {
    hold "poll: 60s"
    slurm_save
    queue -- true
    first=$id
    queue -- true
    number=$(jobs_of "$first")
    second=$(jobs_of "$id")
    slurm_forget
    until [[ " ${others[*]} " == *" $second "* ]]; do
        other_job
    done
    has_state "$number" PENDING
    # The watcher has not asked since: kill does not know yet that there is no job.
    run "$FORGE" kill "$id"
    finished "$id"
    [[ "$(field .status)" =~ ^(lost|cancelled)$ ]]
    has_state "$number" PENDING
    has_state "$second" PENDING
    # The next one asks at once.
    # shellcheck disable=SC2046 # each of them
    kill -KILL $(watchers)
    patiently no_watcher
    finished "$first"
    lost "Slurm has no job"
    has_state "$number" PENDING
    has_state "$second" PENDING
}

@test "a controller that is started again in the middle of a job" {
    start
    slurm_save
    slurm_forget
    open_gate
    finished "$id"
    verdict succeeded exit 0
}

@test "a controller that has forgotten that a job runs starts it again: the command does not" {
    hold
    queue -i "$T/gate" -- sh -c "echo ready; $(gated)"
    job=$(jobs_of "$id")
    slurm_save
    release "$job"
    patiently says_ready
    slurm_forget
    # It kills the copy that runs, of which it knows nothing, and has the job as it was.
    node_is_gone() { [ -z "$(node_process "$id")" ]; }
    patiently node_is_gone
    release "$job"
    patiently is_over "$job"
    finished "$id"
    [[ "$(field .status)" =~ ^(lost|cancelled)$ ]]
    [[ "$(field .completion_notes)" == *"Slurm job $job ended as"* ]]
    [ "$(events "$id" started)" -eq 1 ]
    [ "$("$FORGE" logs "$id")" = ready ]
    patiently swept
}

# ---- jobs that are started twice

@test "the script of a job that is run once more, by hand, does nothing" {
    start
    slurm scontrol write batch_script "$(jobs_of "$id")" script >/dev/null
    run sh script
    [ "$status" -eq 125 ]
    [[ "$output" == *"not to be run again"* ]]
    open_gate
    finished "$id"
    verdict succeeded exit 0
    [ "$(cat "$(field .logs.stdout)")" = ready ]
    run sh script
    [ "$status" -ne 0 ]
}

@test "a job that an administrator requeues is not carried out twice" {
    start --grace 1s
    job=$(jobs_of "$id")
    slurm scontrol update jobid="$job" requeue=1
    slurm scontrol requeue "$job"
    finished "$id"
    [[ "$(field .status)" =~ ^(lost|cancelled)$ ]]
    [ "$(events "$id" started)" -eq 1 ]
    [ "$(cat "$(field .logs.stdout)")" = ready ]
    slurm scancel "$job"
}

# ---- nodes that die

@test "a node that dies: lost, with what Slurm says" {
    start
    node=$(node_of "$id")
    slurm_kill_node "$node"
    slurm scontrol update nodename="$(slurm_node "$node")" state=DOWN reason=died
    finished "$id"
    [ "$status" -eq 137 ]
    lost NODE_FAIL "$(slurm_node "$node")"
    [ "$(field .cluster.job)" = "$(jobs_of "$id")" ]
    slurm_start_node "$node"
    patiently swept
}

@test "a node that is only thought to be dead: what it does later changes nothing" {
    queue -i "$T/gate" -- sh -c "echo ready; i=0; until [ -e $T/gate/open ]; do echo \$i >f\$i; i=\$((i+1)); sleep 0.01; done; echo late"
    patiently says_ready
    node=$(node_of "$id")
    process=$(node_process "$id")
    slurm_kill_slurmd "$node"
    slurm scontrol update nodename="$(slurm_node "$node")" state=DOWN reason=partition
    finished "$id"
    lost NODE_FAIL
    [ "$("$FORGE" logs "$id")" = ready ]
    [ -z "$(ls "$shared")" ]
    # The attempt goes on, and ends.
    run gone "$process"
    [ "$status" -ne 0 ]
    cp "$record" before
    open_gate
    patiently gone "$process"
    finished "$id"
    cmp before "$record"
    [ -z "$(ls "$shared")" ]
    slurm_start_node "$node"
    patiently swept
}

@test "forge on the node is killed: lost, and nothing of the run goes on" {
    mark=66$$.$RANDOM
    queue -- sh -c "echo ready; sleep $mark"
    patiently says_ready
    kill -KILL "$(node_process "$id")"
    finished "$id"
    lost "FAILED"
    patiently not_on_host "sleep $mark"
    patiently swept
}

@test "forge on the node is killed before it has claimed the run: lost, and tried again" {
    cat >killed <<SCRIPT
#!/bin/sh
[ ! -e $T/die ] || { rm $T/die; kill -KILL \$\$; }
exec "$FORGE" "\$@"
SCRIPT
    chmod +x killed
    declare_cluster "forge: $T/killed"
    touch die
    forge_run -- true
    [ "$status" -eq 137 ]
    lost "FAILED"
    [ "$(field .started_at)" = null ]
    touch die
    forge_run --retry host_lost=1 -- true
    verdict succeeded exit 0
    [ "$(field .attempt)" -eq 2 ]
    [ "$(of "$(field .parent_run)" .reason)" = host_lost ]
}

@test "forge crashes on the node before it has claimed the run: rejected" {
    printf '#!/bin/sh\nulimit -c 0\nkill -SEGV $$\n' >broken
    chmod +x broken
    declare_cluster "forge: $T/broken"
    forge_run --retry host_lost=1 -- true
    refused "JobLaunchFailure" "forge executor check slurm"
}

# groups_of RUN
groups_of() { find "${cgroup_dirs[@]}" /sys/fs/cgroup/*/"slurm_forge$(<"$FORGE_SLURM/number")"-* -name "forge-$1"; }

@test "cgroups of a forge that was killed on a node are removed by the next run there, and no other" {
    declare_cluster "options: [--nodelist=$(slurm_node 1)]"
    mark=67$$.$RANDOM
    start
    living=$id
    groups_of "$living" | sort >before
    [ "$(wc -l <before)" -ge 3 ]
    queue -- sh -c "echo ready; sleep $mark"
    patiently says_ready
    killed=$id
    # Empty: one that a process has locked, as forge does before there is a process in it, and one of another user.
    locked=${cgroup_dirs[0]}/forge-00000000000000000000locked
    foreign=${cgroup_dirs[0]}/forge-0000000000000000000foreign
    mkdir "$locked" "$foreign"
    chown 12345 "$foreign"
    exec {lock}<"$locked"
    flock -x "$lock"
    kill -KILL "$(node_process "$killed")"
    finished "$killed"
    patiently not_on_host "sleep $mark"
    groups_of "$killed" | grep -q /memory/ # on the node
    groups_of "$killed" | grep -q /pids/   # beside those of other jobs
    forge_run -- true
    verdict succeeded exit 0
    [ -z "$(groups_of "$killed")" ]
    groups_of "$living" | sort | cmp before
    [ -d "$locked" ]
    [ -d "$foreign" ]
    exec {lock}<&-
    forge_run -- true
    [ ! -d "$locked" ]
    rmdir "$foreign"
    # Slurm could not remove its group around that of the killed one, either.
    [ "$(slurm_cgroups | grep -c /memory/)" -eq 1 ]
    open_gate
    finished "$living"
    verdict succeeded exit 0
    [ "$(field .usage.memory_peak_bytes)" -gt 0 ]
}

@test "a run that starts while groups are swept makes those again that were removed too early" {
    # What a node does once for each run, all the time: it removes each group that can be locked.
    cat >sweeper.py <<'SWEEPER'
import fcntl, glob, os, sys
while not os.path.exists("stop"):
    for path in [p for d in sys.argv[1:] for p in glob.glob(d + "/forge-0*")]:
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.access(path, os.F_OK):
                os.rmdir(path)
                print("removed", flush=True)
        except OSError:
            pass
        os.close(fd)
SWEEPER
    background python3 sweeper.py "${cgroup_dirs[@]}" >removed
    sweeper=$pid
    # It is a matter of microseconds: some runs out of a hundred.
    for ((i = 0; i < 100 || i < 2000 && $(wc -l <removed) < 5; i++)); do
        code=0
        "$FORGE" run -q --executor local -- sh -c "exit 7" || code=$?
        [ "$code" -eq 7 ]
    done
    touch stop
    wait "$sweeper"
    echo "$(wc -l <removed) groups were removed while $i runs started"
    [ -s removed ]
}

@test "a job that has no memory left, beyond that of the run: killed for memory" {
    start --memory 64M
    cgroup=$(find "/sys/fs/cgroup/memory/slurm_$(slurm_node "$(node_of "$id")")" -path "*/job_$(jobs_of "$id")/step_batch/task_0")
    # The kernel kills the one that takes most; forge would end the run.
    kill -STOP "$(node_process "$id")"
    run python3 -c '
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
b = b"x" * (400 << 20)' "$cgroup"
    [ "$status" -eq 137 ]
    kill -KILL "$(node_process "$id")"
    finished "$id"
    [ "$(field .status)" = killed ]
    [ "$(field .reason)" = memory ]
    [[ "$(field .completion_notes)" == *OUT_OF_MEMORY* ]]
    has_state "$(jobs_of "$id")" OUT_OF_MEMORY
    patiently swept
}

# ---- nodes that lack something

@test "the shared directory is not shared with the node" {
    forge_run -- true
    hide "$shared"
    forge_run -- true
    unhide "$shared"
    refused "$shared" "shared with the node" "forge executor check slurm"
}

@test "forge is not on the node, or is another version" {
    declare_cluster "forge: /nonexistent/forge"
    forge_run -- true
    refused /nonexistent/forge "not found"
    cat >other <<SCRIPT
#!/bin/sh
sed -i 's/"forge_version":"[^"]*"/"forge_version":"0.0.1-other"/' "\$2/job.json"
exec "$FORGE" "\$@"
SCRIPT
    chmod +x other
    declare_cluster "forge: $T/other"
    forge_run -- true
    refused "0.0.1-other" "node $(slurm_node "")" "executors.NAME.forge"
}

@test "an input that the node does not have is refused by its name" {
    mkdir data
    echo x >data/file
    hide "$T/data"
    forge_run -i data/file -- cat data/file
    unhide "$T/data"
    [ "$status" -eq 125 ]
    refused "$T/data/file" "node $(slurm_node "")"
}

# ---- what is not known is not decided

@test "a squeue that fails for a while, or hangs, means nothing" {
    fake squeue "echo >>$T/asked
        until [ ! -e $T/hang ]; do sleep 0.05; done
        [ ! -e $T/broken ] || exit 1
        exec \"\$real\" \"\$@\""
    declare_cluster "max_lag: 1s" "poll: 100ms"
    start
    touch broken
    : >asked
    run "$FORGE" wait --timeout 4s "$id"
    [ "$status" -eq 124 ]
    [ "$(of "$id" .status)" = running ]
    [ "$(wc -l <asked)" -ge 5 ]
    touch hang
    open_gate
    run "$FORGE" wait --timeout 2s "$id"
    [[ "$(of "$id" .status)" =~ ^(running|succeeded)$ ]]
    rm hang
    finished "$id"
    verdict succeeded exit 0
    rm broken
}

# may_hang COMMAND...: of Slurm; after hang COMMAND it does, and is_hanging COMMAND says that it was called since. After
# heal COMMAND it answers again, but a call that hangs goes on hanging.
may_hang() {
    local name
    for name; do
        fake "$name" "[ ! -e $T/hang-$name ] || { touch $T/hangs-$name; sleep 100; }; exec \"\$real\" \"\$@\""
    done
}
hang() {
    rm -f "$T/hangs-$1"
    touch "$T/hang-$1"
}
is_hanging() { [ -e "$T/hangs-$1" ]; }
heal() { rm "$T/hang-$1"; }

# in_seconds SECONDS: the interrupted run ends within that time, as cancelled; a command of Slurm is waited for 45 s.
in_seconds() {
    status=0
    wait "$pid" || status=$?
    in_time "$begin" $(($1 * 1000))
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
}
interrupt() {
    begin=$(now_ms)
    kill -INT "$pid"
}

@test "an interrupt does not wait for a squeue that hangs: a run that is pending" {
    hold
    may_hang squeue
    hang squeue
    interruptible "$FORGE" run --json "${OPTS[@]}" -- true >"$record"
    patiently is_hanging squeue
    interrupt
    in_seconds 10
    heal squeue
}

@test "an interrupt does not wait for a squeue that hangs: a run that a node has" {
    may_hang squeue
    interruptible "$FORGE" run --json "${OPTS[@]}" --grace 20s -- \
        sh -c "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.02; done" >"$record" 2>"$err"
    has_run() { id=$("$FORGE" ps -q -n 1) && says_ready; }
    patiently has_run
    hang squeue
    patiently is_hanging squeue
    interrupt
    # What Slurm says is not needed: the outcome is there, and forge here knows that it has cancelled the run.
    in_seconds 15
    grep -qx asked "$(field .logs.stdout)"
    heal squeue
}

@test "an interrupt does not wait for an sbatch that hangs, and nothing is run later" {
    fake sbatch "\"\$real\" --hold \"\$@\" >$T/job; touch $T/hangs-sbatch; sleep 100"
    interruptible "$FORGE" run --json "${OPTS[@]}" -o mark -- touch mark >"$record"
    patiently is_hanging sbatch
    interrupt
    in_seconds 15
    # It is not in the queue for ever.
    patiently has_state "$(cat job)" CANCELLED
    rm "$T/bin/sbatch"
}

@test "an interrupt while standard input is read: cancelled, and nothing is submitted" {
    fake sbatch "touch $T/submitted; exec \"\$real\" \"\$@\""
    mkfifo in
    exec {writer}<>in
    echo one >&"$writer"
    "$FORGE" run --json "${OPTS[@]}" --stdin -- cat <in >"$record" 3>&- 4>&- &
    pid=$!
    started+=("$pid")
    is_spooled() { [ -n "$(find "$shared" -name stdin -size +0)" ]; }
    patiently is_spooled
    begin=$(now_ms)
    kill -TERM "$pid"
    in_seconds 10
    [ ! -e submitted ]
    exec {writer}>&-
}

@test "an interrupt while no command of Slurm answers: a run that is pending is cancelled, and does nothing later" {
    hold
    may_hang squeue scancel
    hang squeue
    hang scancel
    interruptible "$FORGE" run --json "${OPTS[@]}" -- true >"$record"
    patiently is_hanging squeue
    interrupt
    in_seconds 15
    is_hanging scancel
    heal squeue
    heal scancel
    job=$(jobs_of "$(field .run_id)")
    release "$job"
    patiently is_over "$job"
    [ "$("$FORGE" show --json "$(field .run_id)" | jq -r .status)" = cancelled ]
}

@test "a second interrupt ends a scancel that hangs, and both reach the node" {
    may_hang scancel
    interruptible "$FORGE" run --json "${OPTS[@]}" --grace 60s -- \
        sh -c "trap '' TERM; echo ready; while :; do sleep 0.02; done" >"$record" 2>"$err"
    has_run() { id=$("$FORGE" ps -q -n 1) && says_ready; }
    patiently has_run
    hang scancel
    interrupt
    patiently is_hanging scancel
    heal scancel
    interrupt
    in_seconds 20
}

@test "the shared directory is away for a while: the run is not lost" {
    declare_cluster "max_lag: 1s"
    start
    job=$(jobs_of "$id")
    mv "$shared" "$shared.away"
    mkdir "$shared"
    open_gate
    patiently is_over "$job"
    run "$FORGE" wait --timeout 4s "$id"
    [ "$status" -eq 124 ]
    [ "$(of "$id" .status)" = running ]
    rmdir "$shared"
    mv "$shared.away" "$shared"
    finished "$id"
    verdict succeeded exit 0
}

# ---- runs that nobody waits for

@test "a submitted run has its post-process, its copy and its log, which can be followed" {
    printf 'one\ntwo\n' >in
    queue -i in -i gate -o r.txt --copy "$T/results" --post-process 'printf "{\"n\": %s}\n" "$(wc -l <r.txt)"' \
        -- sh -c "cat in >r.txt; echo first; $(gated); echo last; echo bad >&2"
    background "$FORGE" logs -f "$id" >followed 2>followed.err
    patiently grep -qx first followed
    open_gate
    wait "$pid"
    [ "$(cat followed)" = $'first\nlast' ]
    [ "$(tail -n 1 followed.err)" = bad ]
    finished "$id"
    verdict succeeded exit 0
    cmp in results/r.txt
    [ "$("$FORGE" post-process --records "$id" | jq .n)" -eq 2 ]
    [ "$("$FORGE" logs "$id" 2>/dev/null)" = $'first\nlast' ]
}

@test "one watcher attends 100 runs, is started again when it was killed, and ends after the last one" {
    for i in $(seq 100); do
        "$FORGE" submit "${OPTS[@]}" -- sh -c "echo out-$i; exit $i" >"id-$i" 3>&- &
        [ $((i % 4)) -ne 0 ] || wait
    done
    # Its children collect runs.
    for n in 1 2 3 4 5 6; do
        found=$(watchers | wc -l)
        echo "$found processes"
        [ "$found" -le 4 ]
        # shellcheck disable=SC2046 # each of them
        kill -KILL $(watchers) 2>/dev/null || true
        patiently no_watcher
        "$FORGE" ps >/dev/null
    done
    [ -n "$(watchers)" ] || nothing_active
    for i in $(seq 100); do
        finished "$(cat "id-$i")"
        [ "$status" -eq "$i" ]
        [ "$(field .status)" = failed ]
        [ "$(cat "$(field .logs.stdout)")" = "out-$i" ]
        [ "$(events "$(cat "id-$i")" started)" -eq 1 ]
    done
    patiently no_watcher
}

@test "list shows a cluster, and one that cannot be reached" {
    budget "  away: {kind: slurm, dir: $T/away, slurm_conf: $T/none.conf}"
    "$FORGE" executor list --json >executors
    [ "$(jq -r '.[] | select(.name == "slurm") | .reachable' executors)" = true ]
    [[ "$(jq -r '.[] | select(.name == "slurm") | .what' executors)" == "Slurm "[0-9]*", 3 nodes" ]]
    [ "$(jq -r '.[] | select(.name == "away") | .reachable' executors)" = false ]
}

# Real runs on nodes attack every promise. It takes most of a minute: some attacks last until a limit ends them.
@test "check: a node keeps every promise that this machine keeps" {
    status=0
    "$FORGE" executor check slurm --json >report || status=$?
    jq -r '.checks[] | "\(.promise): \(.state)"' report
    [ "$status" -eq 0 ]
    [ "$(jq -r .level report)" = full ]
    [ "$(jq '[.checks[] | select(.state == "fail")] | length' report)" -eq 0 ]
    [ "$(jq '[.checks[] | select(.state == "pass")] | length' report)" -ge 30 ]
    # Something of each check was on a node.
    [ "$(slurm squeue -h -t all -o %j | grep -c '^forge-')" -ge 30 ]
}

# ---- processes of forge that are killed

# 40 runs here, with more kills than runs; more by hand: FORGE_CRASHES=200.
@test "processes of forge killed at random moments, here and on nodes, lose nothing and start nothing twice" {
    run "$BATS_TEST_DIRNAME/../tools/crash-slurm.py" "$FORGE" "${FORGE_CRASHES:-40}" "$shared"
    echo "$output"
    [ "$status" -eq 0 ]
    patiently swept
}

# both_wait PID: SIGINT and SIGTERM wait for a process that is stopped.
both_wait() { [ $((0x$(awk '$1 == "ShdPnd:" { print $2 }' "/proc/$1/status") & 0x4002)) -eq $((0x4002)) ]; }

has_said_ready() {
    id=$("$FORGE" ps -q -n 1) && [ -n "$id" ] && says_ready
}

@test "a second request to end is not lost when forge on the node has not seen the first" {
    interruptible "$FORGE" run --json "${OPTS[@]}" --grace 300s -- \
        sh -c "trap '' TERM INT; echo ready; while :; do sleep 0.02; done" >"$record"
    patiently has_said_ready
    node=$(node_process "$id")
    kill -STOP "$node"
    kill -INT "$pid"
    patiently grep -q '"cancelled"' "$FORGE_HOME/runs/$id/events.jsonl"
    begin=$(now_ms) status=0
    kill -INT "$pid"
    patiently both_wait "$node"
    kill -CONT "$node"
    wait "$pid" || status=$?
    in_time "$begin" 60000
    [ "$status" -eq 130 ]
    [ "$(field .status)" = cancelled ]
}
