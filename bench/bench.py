#!/usr/bin/env python3
"""Speed of forge next to its peers; docs/BENCH.md says how each figure is made.

    bench.py [--rounds N] [PART...]      parts: start memory flood kill flat guest; default: all

All figures of a table come from one run: the commands take turns, so that what else the
machine does hits them alike; medians and ratios are what to look at.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FORGE = os.environ.get("FORGE", str(HERE.parent / "build/src/cli/forge"))
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18


def table(title, head, rows):
    """Prints aligned columns; the first to the left, the others to the right."""
    cells = [head] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    print(f"\n{title}")
    for row in cells:
        line = [row[0].ljust(widths[0])]
        line += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  " + "  ".join(line).rstrip())
    sys.stdout.flush()


def quiet():
    """The file actions that send a child's output nowhere."""
    return [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 1, 2)]


def once(argv):
    """Milliseconds from before the spawn to after the wait, or None when it failed."""
    began = time.perf_counter_ns()
    pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=quiet())
    _, status = os.waitpid(pid, 0)
    spent = (time.perf_counter_ns() - began) / 1e6
    return spent if status == 0 else None


def why_not(argv):
    """The first line a failing command says."""
    run = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    lines = (run.stderr + run.stdout).strip().splitlines()
    return f"status {run.returncode}: {lines[-1] if lines else ''}"[:160]


def take_turns(commands, rounds):
    """{name: [ms]} of commands {name: argv}, interleaved in random order; bad ones left out."""
    good, bad = {}, {}
    for name, argv in commands.items():
        if not shutil.which(argv[0]):
            bad[name] = "not installed"
        elif once(argv) is None or once(argv) is None:
            bad[name] = why_not(argv)
        else:
            good[name] = []
    for _ in range(rounds):
        for name in random.sample(list(good), len(good)):
            spent = once(commands[name])
            if spent is not None:
                good[name].append(spent)
    return good, bad


def same_view():
    """bwrap's options for the view of forge's own plan."""
    plan = json.loads(subprocess.run([FORGE, "run", "--dry-run", "--", "/bin/true"], check=True,
                                     capture_output=True, text=True).stdout)
    options = []
    for mount in plan["mounts"]:
        kind, target, source = mount["type"], mount["target"], mount.get("source")
        if kind == "read_only":
            options += ["--ro-bind", source, target]
        elif kind == "symlink" and not target.startswith("/dev/"):
            options += ["--symlink", source, target]
        elif kind == "tmpfs":
            options += ["--tmpfs", target]
        elif kind == "proc":
            options += ["--proc", target, "--dev", "/dev"]
        elif kind == "dir":
            options += ["--dir", target]
    return options


LEAN_VIEW = ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib",
             "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
             "--tmpfs", "/tmp"]


def bwrap(view, work):
    return ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", *view,
            "--bind", str(work), "/tmp/work", "--chdir", "/tmp/work", "/bin/true"]


def runc(work):
    """A bundle with the same namespaces and limits, on a root of the host's /usr."""
    root = work / "bundle/rootfs"
    for name in ("usr", "proc", "dev", "sys", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    subprocess.run(["runc", "spec"], cwd=root.parent, check=True)
    path = root.parent / "config.json"
    spec = json.loads(path.read_text())
    spec["process"].update(terminal=False, args=["/bin/true"], user={"uid": 1000, "gid": 1000})
    spec["mounts"].append({"destination": "/usr", "type": "none", "source": "/usr",
                           "options": ["rbind", "ro"]})
    spec["linux"]["resources"].update(memory={"limit": 2 << 30}, pids={"limit": 100},
                                      cpu={"quota": 100000, "period": 100000})
    path.write_text(json.dumps(spec))
    return ["runc", "run", "--bundle", str(root.parent), f"forge-bench-{os.getpid()}"]


def podman(work):
    """Podman with a store of its own; the settings are for hosts without systemd."""
    conf = work / "containers.conf"
    conf.write_text('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
                    '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\n'
                    'events_logger = "file"\n')
    os.environ["CONTAINERS_CONF"] = str(conf)
    return ["podman", "--root", str(work / "store"), "--runroot", str(work / "runroot"),
            "--tmpdir", str(work / "tmp"), "--storage-driver", "vfs"]


def start_commands(work):
    commands = {
        "plain true": ["/bin/true"],
        "forge run -q": [FORGE, "run", "-q", "--", "/bin/true"],
        "bwrap, same view": bwrap(same_view(), work),
        "bwrap, lean view": bwrap(LEAN_VIEW, work),
    }
    if shutil.which("firejail"):
        commands["firejail"] = ["firejail", "--quiet", "--noprofile", "--private", "--private-dev",
                                "--private-tmp", "--net=none", "--caps.drop=all", "--seccomp",
                                "--nonewprivs", "/bin/true"]
    if shutil.which("runc") and os.geteuid() == 0:
        commands["runc run"] = runc(work)
    if shutil.which("podman") and "runc run" in commands:
        commands["podman run"] = [*podman(work), "run", "--rm", "--network", "none", "--memory", "2g",
                                  "--pids-limit", "100", "-v", "/usr:/usr:ro",
                                  "--rootfs", str(work / "bundle/rootfs"),
                                  "/usr/bin/true"]
    return commands


def start_table(title, good, bad):
    base = statistics.median(good["bwrap, same view"]) if "bwrap, same view" in good else None
    rows = []
    for name, spent in sorted(good.items(), key=lambda item: statistics.median(item[1])):
        ordered = sorted(spent)
        median = statistics.median(spent)
        rows.append([name, f"{median:.2f}", f"{ordered[0]:.2f}", f"{ordered[len(spent) * 9 // 10]:.2f}",
                     f"{median / base:.2f}" if base else "-"])
    table(title, ["start to end of /bin/true, ms", "median", "least", "90 %", "x bwrap"], rows)
    for name, why in bad.items():
        print(f"  {name} left out: {why}")


def bench_start(args, work):
    commands = start_commands(work)
    slow = {name: commands.pop(name) for name in ("podman run",) if name in commands}
    good, bad = take_turns(commands, args.rounds)
    more, bad_too = take_turns(slow, min(args.rounds, 10))
    start_table(f"Start, {args.rounds} rounds", {**good, **more}, {**bad, **bad_too})


def bench_memory(_args, _work):
    run = subprocess.Popen([FORGE, "run", "-q", "--", "sleep", "5"])
    time.sleep(1)
    status = pathlib.Path(f"/proc/{run.pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    run.send_signal(signal.SIGTERM)
    run.wait()
    table("Supervisor during a run", ["field of /proc/PID/status", "KiB"],
          [[name, fields[name].split()[0]] for name in ("VmRSS", "VmHWM", "RssAnon")])


def bench_flood(args, work):
    size = args.flood_mib << 20
    log = work / "plain.log"
    spent = {"redirect to a file": [], "forge run -q": []}
    for _ in range(5):
        began = time.perf_counter()
        with open(log, "wb") as out:
            subprocess.run(["head", "-c", str(size), "/dev/zero"], stdout=out, check=True)
        spent["redirect to a file"].append(time.perf_counter() - began)
        log.unlink()
        began = time.perf_counter()
        subprocess.run([FORGE, "run", "-q", "--output-limit", "4G", "--", "head", "-c", str(size),
                        "/dev/zero"], check=True)
        spent["forge run -q"].append(time.perf_counter() - began)
        shutil.rmtree(os.environ["FORGE_HOME"] + "/runs")
    medians = {name: statistics.median(times) for name, times in spent.items()}
    plain = medians["redirect to a file"]
    table(f"Log flood, {args.flood_mib} MiB of zeros to one stream",
          ["", "s", "MiB/s", "x redirect"],
          [[name, f"{t:.2f}", f"{args.flood_mib / t:.0f}", f"{plain / t:.2f}"]
           for name, t in medians.items()])


TREE = """trap '' TERM
i=0; while [ $i -lt 1000 ]; do sleep 100 & i=$((i + 1)); done
echo ready
wait"""


def time_kill(argv, stop):
    """Milliseconds from stop(process) to the end of the process, the tree being up."""
    run = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    run.stdout.readline()
    run.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    began = time.perf_counter()
    stop(run)
    run.wait()
    return (time.perf_counter() - began) * 1000


def bench_kill(_args, _work):
    """forge's second SIGTERM kills at once. The bare namespace is the kernel's own share."""
    forge = [FORGE, "run", "--pids", "1100", "--cpus"]
    ways = {
        "forge, second SIGTERM to its end, all CPUs": (
            [*forge, str(os.cpu_count()), "--", "sh", "-c", TREE], subprocess.Popen.terminate),
        "the same, --cpus 1 (the default)": (
            [*forge, "1", "--", "sh", "-c", TREE], subprocess.Popen.terminate),
        "bare pid namespace, SIGKILL to its end": (
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", TREE],
            lambda run: os.kill(first_child(run.pid), signal.SIGKILL)),
    }
    spent = {name: [] for name in ways}
    for _ in range(5):
        for name, (argv, stop) in ways.items():
            spent[name].append(time_kill(argv, stop))
    table("Kill of a tree of 1,000 processes that ignore SIGTERM, 5 rounds",
          ["", "median ms", "most ms"],
          [[name, f"{statistics.median(t):.0f}", f"{max(t):.0f}"] for name, t in spent.items()])


def first_child(pid):
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def mount(source, target, flags, kind=None):
    if LIBC.mount(source.encode(), str(target).encode(), kind.encode() if kind else None, flags,
                  None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}")


def with_mounts(n, work, commands, rounds):
    """Medians of the commands in a mount namespace with n more bind mounts."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        if LIBC.unshare(CLONE_NEWNS) != 0:
            os._exit(1)
        mount("none", "/", MS_REC | MS_PRIVATE)
        place = work / f"mounts-{n}"
        place.mkdir(exist_ok=True)
        mount("none", place, 0, "tmpfs")
        for i in range(n):
            (place / str(i)).mkdir()
            mount(str(place / str(i)), place / str(i), MS_BIND)
        good, _ = take_turns(commands, rounds)
        os.write(write_end, json.dumps({k: statistics.median(v) for k, v in good.items()}).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def bench_flat(args, work):
    if os.geteuid() != 0:
        print("\nFlatness needs root for its mounts; left out")
        return
    commands = {name: argv for name, argv in start_commands(work / "flat").items()
                if name in ("forge run -q", "bwrap, same view")}
    results = {0: [], 500: []}
    for n in (0, 500, 0, 500):
        results[n].append(with_mounts(n, work, commands, max(args.rounds // 4, 10)))
    rows = []
    for name in commands:
        few, many = (statistics.mean(r[name] for r in results[n]) for n in (0, 500))
        rows.append([name, f"{few:.2f}", f"{many:.2f}", f"{many / few:.2f}"])
    table("Flat in the number of host mounts, ms", ["", "+0 mounts", "+500 mounts", "ratio"], rows)


def bench_guest(args, work):
    """The start table on a unified hierarchy, in a User-Mode Linux guest."""
    if not shutil.which("linux.uml"):
        print("\nUnified cgroup v2 needs user-mode-linux; left out")
        return
    script = (f"export FORGE={FORGE}; cd /tmp; printf 'sandbox:\\n  allow_missing: [landlock, "
              f"landlock_scope]\\n' >forge.yaml; FORGE_CONFIG=/tmp/forge.yaml /usr/bin/python3 "
              f"{HERE}/bench.py --rounds {max(args.rounds // 4, 10)} start")
    print("\nOn unified cgroup v2, in a User-Mode Linux guest (system calls cost 10 times as much, "
          "no Landlock):")
    sys.stdout.flush()
    subprocess.run([str(HERE.parent / "tests/guest/run-uml.sh"), str(HERE.parent), script],
                   stderr=subprocess.DEVNULL, check=False)


PARTS = {"start": bench_start, "memory": bench_memory, "flood": bench_flood, "kill": bench_kill,
         "flat": bench_flat, "guest": bench_guest}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--flood-mib", type=int, default=2048)
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part '{unknown[0]}' (have: {', '.join(PARTS)})")
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        os.environ["FORGE_HOME"] = str(work / "home")
        for sub in ("home", "flat"):
            (work / sub).mkdir(mode=0o700)
        for part, bench in PARTS.items():
            if part in args.parts or not args.parts:
                bench(args, work)


main()
