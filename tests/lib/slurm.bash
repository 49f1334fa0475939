# slurm.bash: a Slurm cluster of our own, for tests: a controller and three nodes, all on this host. Everything is
# in one temporary directory, nothing is configured on the host, and only loopback is listened on. A node is a PID
# namespace and a mount namespace: killing it kills all that runs there, as when a machine dies.
#
#   slurm_missing           what this host lacks for it; nothing if it lacks nothing
#   slurm_make              starts it; returns when all nodes are idle; sets and exports FORGE_SLURM, its directory
#   slurm_remove            ends whatever runs, and removes the directory and the cgroups
#   slurm COMMAND...        sbatch, squeue, scontrol ... of this cluster
#   slurm_node N            the name of node 1, 2 or 3
#   slurm_kill_node N       it dies, with everything on it
#   slurm_kill_slurmd N     Slurm loses the node, on which everything goes on
#   slurm_start_node N      starts it (again); returns when it is idle
#   slurm_in_node N ...     runs a command in its namespaces
#   slurm_end_controller, slurm_stop_controller, slurm_continue_controller
#                           SIGTERM, SIGSTOP, SIGCONT
#   slurm_start_controller  again; returns when it answers
#   slurm_save, slurm_forget
#                           the controller crashes, and knows only what it knew at the time of slurm_save
#   slurm_mend              whatever a test has done to it, it works again
#   slurm_jobs              the names of all jobs that are not over, one a line
#   slurm_cgroups           the cgroups of jobs that there are, one a line
#
# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0

slurm_missing() {
    local program missing=()
    [ "$(id -u)" -eq 0 ] || missing+=(root)
    for program in slurmctld slurmd munged sbatch squeue scancel scontrol sinfo unshare nsenter; do
        PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || missing+=("$program")
    done
    [ -d /sys/fs/cgroup/freezer ] || missing+=("cgroup v1")
    echo "${missing[*]}"
}

slurm() { SLURM_CONF=$FORGE_SLURM/slurm.conf "$@"; }
slurm_node() { echo "forge$(<"$FORGE_SLURM/number")-$1"; }

slurm_make() {
    local n
    # A short name: the path of a socket has 107 characters.
    FORGE_SLURM=$(mktemp -d /tmp/forge-sl-XXXXXX) || return
    export FORGE_SLURM
    chmod 755 "$FORGE_SLURM"
    mkdir "$FORGE_SLURM"/{state,log,pid,spool}
    mkdir -m 711 "$FORGE_SLURM/munge"
    # The names of the nodes are those of cgroups, which all clusters of this host share.
    echo $$ >"$FORGE_SLURM/number"
    slurm_free_ports >"$FORGE_SLURM/port"
    slurm_configure "$(<"$FORGE_SLURM/port")"
    (umask 077 && head -c 1024 /dev/urandom >"$FORGE_SLURM/munge/key")
    slurm_serve munged munged -F -S "$FORGE_SLURM/munge/socket" --key-file="$FORGE_SLURM/munge/key" \
        --log-file="$FORGE_SLURM/munge/log" --pid-file="$FORGE_SLURM/munge/pid" --seed-file="$FORGE_SLURM/munge/seed"
    slurm_until test -S "$FORGE_SLURM/munge/socket"
    slurm_start_controller
    for n in 1 2 3; do
        slurm_spawn_node "$n"
    done
    for n in 1 2 3; do
        slurm_until slurm_is_idle "$n"
    done
}

# Four ports in a row, below those that the kernel gives to clients.
slurm_free_ports() {
    python3 -c '
import random, socket
def is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
while True:
    first = random.randrange(20000, 32000)
    if all(is_free(first + i) for i in range(4)):
        print(first)
        break'
}

# A job is scheduled as soon as it is submitted, a credential expires in no time, and a job that has ended is known
# for longer than any test takes. The nodes say that they have more memory than this host, so that no job waits for it.
slurm_configure() {
    local n nodes
    nodes="forge$(<"$FORGE_SLURM/number")-[1-3]"
    cat >"$FORGE_SLURM/slurm.conf" <<CONF
ClusterName=forge
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$FORGE_SLURM/munge/socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$FORGE_SLURM/state
SlurmdSpoolDir=$FORGE_SLURM/spool/%n
SlurmctldPidFile=$FORGE_SLURM/pid/slurmctld.own
SlurmdPidFile=$FORGE_SLURM/pid/slurmd.%n
SlurmctldLogFile=$FORGE_SLURM/log/slurmctld
SlurmdLogFile=$FORGE_SLURM/log/slurmd.%n
MailProg=/bin/true
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmctldTimeout=20
SlurmdTimeout=5
InactiveLimit=0
KillWait=2
MinJobAge=600
JobRequeue=0
DefMemPerCPU=256
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=2000,sched_interval=1,batch_sched_delay=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
PartitionName=main Nodes=$nodes Default=YES MaxTime=INFINITE State=UP
PartitionName=other Nodes=$nodes MaxTime=INFINITE State=UP
CONF
    for n in 1 2 3; do
        echo "NodeName=$(slurm_node "$n") NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$(($1 + n))" \
            "CPUs=2 RealMemory=60000 State=UNKNOWN"
    done >>"$FORGE_SLURM/slurm.conf"
    printf '%s\n' CgroupMountpoint=/sys/fs/cgroup CgroupAutomount=no ConstrainRAMSpace=yes ConstrainCores=yes \
        >"$FORGE_SLURM/cgroup.conf"
}

# slurm_serve NAME COMMAND...: in the background, with no descriptor of a test.
slurm_serve() {
    local name=$1
    shift
    PATH=$PATH:/usr/sbin setsid "$@" </dev/null >>"$FORGE_SLURM/log/$name.out" 2>&1 3>&- 4>&- &
    echo $! >"$FORGE_SLURM/pid/$name"
    disown # or the shell says that it was killed
}

# slurm_until COMMAND...: until it succeeds; half a minute at most.
slurm_until() {
    local deadline=$((SECONDS + 30))
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "slurm: never: $*" >&2; tail -n 20 "$FORGE_SLURM"/log/* >&2; return 1; }
        read -rt 0.02 <> <(:) || true
    done
}

slurm_pid() { cat "$FORGE_SLURM/pid/$1" 2>/dev/null; }
slurm_is_dead() { [ ! -e "/proc/$1" ] || grep -qs '^State:.[ZX]' "/proc/$1/status"; }
slurm_is_idle() { [[ "$(slurm sinfo -h -N -n "$(slurm_node "$1")" -o %t | sort -u)" == idle ]]; }

# slurm_kill NAME: a process of slurm_serve.
slurm_kill() {
    local pid
    pid=$(slurm_pid "$1") || return 0
    # A number may be that of another process by now.
    if grep -qsF -- "$FORGE_SLURM" "/proc/$pid/cmdline" "/proc/$pid/environ"; then
        kill -KILL "$pid" 2>/dev/null || true
        slurm_until slurm_is_dead "$pid"
    fi
    rm -f "$FORGE_SLURM/pid/$1"
}

slurm_start_controller() {
    slurm_serve slurmctld slurmctld -D -f "$FORGE_SLURM/slurm.conf"
    slurm_until slurm_answers
}
slurm_answers() { slurm scontrol ping | grep -q 'is UP'; }
slurm_end_controller() {
    kill -TERM "$(slurm_pid slurmctld)"
    slurm_until slurm_is_dead "$(slurm_pid slurmctld)"
}
slurm_stop_controller() { kill -STOP "$(slurm_pid slurmctld)"; }
slurm_continue_controller() { kill -CONT "$(slurm_pid slurmctld)"; }

# What it has in memory comes to disk a few seconds later; a crash before that cannot be timed.
slurm_save() {
    slurm_end_controller
    rm -rf "$FORGE_SLURM/saved"
    cp -a "$FORGE_SLURM/state" "$FORGE_SLURM/saved"
    slurm_resume_controller
}
# Its nodes register again.
slurm_resume_controller() {
    local n
    slurm_start_controller
    for n in 1 2 3; do
        slurm_until slurm_is_up "$n"
    done
}
slurm_forget() {
    slurm_kill slurmctld
    rm -rf "$FORGE_SLURM/state"
    mv "$FORGE_SLURM/saved" "$FORGE_SLURM/state"
    slurm_resume_controller
}

slurm_mend() {
    local n
    kill -CONT "$(slurm_pid slurmctld)" 2>/dev/null || true
    slurm_answers || slurm_start_controller
    for n in 1 2 3; do
        slurm_is_up "$n" || slurm_start_node "$n"
    done
}
slurm_is_up() {
    [[ "$(slurm sinfo -h -N -n "$(slurm_node "$1")" -o %t | sort -u)" =~ ^(idle|alloc|mix|comp)$ ]] &&
        slurm_listens "$1" 2>/dev/null &&
        ! slurm_in_node "$1" grep -q "$FORGE_SLURM" /proc/self/mountinfo
}

# The first process of its PID namespace lives on without slurmd.
slurm_spawn_node() {
    mkdir -p "$FORGE_SLURM/spool/$(slurm_node "$1")"
    slurm_serve "node$1" unshare -fp --mount-proc --kill-child sh -c \
        "sleep infinity & slurmd -D -f $FORGE_SLURM/slurm.conf -N $(slurm_node "$1") & wait"
}

# Until Slurm notices that a node was away it says that it is idle.
slurm_start_node() {
    slurm_kill_node "$1"
    slurm_spawn_node "$1"
    slurm_until slurm_listens "$1"
    slurm scontrol update nodename="$(slurm_node "$1")" state=RESUME 2>/dev/null || true
    slurm_until slurm_is_idle "$1"
}
slurm_kill_node() {
    local dir
    slurm_kill "node$1"
    for dir in /sys/fs/cgroup/*/"slurm_$(slurm_node "$1")"; do
        [ ! -d "$dir" ] || slurm_until slurm_remove_cgroup "$dir"
    done
}
slurm_listens() { (: <"/dev/tcp/127.0.0.1/$(($(<"$FORGE_SLURM/port") + $1))"); }

# slurm_inside N: the first process of the node, as this host sees it.
slurm_inside() {
    local pid
    pid=$(slurm_pid "node$1")
    tr -d ' ' <"/proc/$pid/task/$pid/children"
}
slurm_in_node() {
    local n=$1
    shift
    nsenter -t "$(slurm_inside "$n")" -m -p -- "$@"
}
slurm_kill_slurmd() {
    local pid
    pid=$(pgrep -P "$(slurm_inside "$1")" -x slurmd)
    kill -KILL "$pid"
    slurm_until slurm_is_dead "$pid"
}

slurm_jobs() { slurm squeue -h -o %j; }
slurm_cgroups() { find /sys/fs/cgroup/*/"slurm_forge$(<"$FORGE_SLURM/number")"-* -name 'job_*' -prune 2>/dev/null; }

slurm_remove() {
    local n
    [ -n "${FORGE_SLURM:-}" ] || return 0
    slurm_kill slurmctld
    for n in 1 2 3; do
        slurm_kill_node "$n"
    done
    slurm_kill munged
    rm -rf "$FORGE_SLURM"
    unset FORGE_SLURM
}
slurm_remove_cgroup() {
    find "$1" -depth -type d -exec rmdir {} ';' 2>/dev/null
    [ ! -d "$1" ]
}
