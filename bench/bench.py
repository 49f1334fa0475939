#!/usr/bin/env python3
"""Speed of forge next to its peers; docs/BENCH.md says how each figure is made.

    bench.py [--rounds N] [--million] [PART...]
                              parts: start memory flood kill flat store crowd hash runtime pipeline docker slurm guard guest python; default: all

All figures of a table come from one run: the commands take turns, so that what else the
machine does hits them alike; medians and ratios are what to look at.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import random
import re
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
    detached = subprocess.run([FORGE, "submit", "--", "sleep", "5"], check=True, capture_output=True,
                              text=True).stdout.strip()
    time.sleep(1)
    record = subprocess.run([FORGE, "show", "--json", detached], check=True, capture_output=True, text=True).stdout
    pid = json.loads(record)["supervisor"]["pid"]
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    alone = dict(line.split(":", 1) for line in status.splitlines())
    subprocess.run([FORGE, "kill", detached], check=True, capture_output=True)
    table("Supervisor during a run, KiB", ["field of /proc/PID/status", "forge run", "forge submit"],
          [[name, fields[name].split()[0], alone[name].split()[0]] for name in ("VmRSS", "VmHWM", "RssAnon")])


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
    # What the kernel alone takes to copy and to drop them.
    commands["a mount namespace, unshare -m"] = ["unshare", "-m", "/bin/true"]
    results = {0: [], 500: []}
    for n in (0, 500, 0, 500):
        results[n].append(with_mounts(n, work, commands, max(args.rounds // 4, 10)))
    rows = []
    for name in commands:
        few, many = (statistics.mean(r[name] for r in results[n]) for n in (0, 500))
        rows.append([name, f"{few:.2f}", f"{many:.2f}", f"{many - few:.2f}", f"{many / few:.2f}"])
    table("Flat in the number of host mounts, ms", ["", "+0 mounts", "+500 mounts", "more", "ratio"], rows)


def bench_store(args, _work):
    """What keeping records costs a run: next to a forge from before there was a store."""
    commands = {"forge run -q": [FORGE, "run", "-q", "--", "/bin/true"]}
    before = os.environ.get("FORGE_BEFORE")
    if before:
        commands["without a store ($FORGE_BEFORE)"] = [before, *commands["forge run -q"][1:]]
    good, bad = take_turns(commands, args.rounds)
    plain = statistics.median(good.get("without a store ($FORGE_BEFORE)", [0]))
    rows = []
    for name, spent in good.items():
        median = statistics.median(spent)
        rows.append([name, f"{median:.2f}", f"{min(spent):.2f}",
                     f"{100 * (median - plain) / median:.0f} %" if plain else "-"])
    table(f"The store's share of a run, {args.rounds} rounds", ["", "median ms", "least ms", "share"], rows)
    for name, why in bad.items():
        print(f"  {name} left out: {why}")


def ended(home, ids, deadline):
    """{id: status} once all have ended, or what there is at the deadline. Looks little: it takes
    the runs' own CPU."""
    done = {}
    for run_id in ids:
        path = home / "runs" / run_id / "record.json"
        while time.monotonic() < deadline:
            try:
                status = json.loads(path.read_text())["status"]
            except (OSError, ValueError):
                status = None
            if status in ("succeeded", "failed", "killed", "cancelled", "lost", "rejected"):
                done[run_id] = status
                break
            time.sleep(0.02)
    return done


def bench_crowd(args, work):
    """All at once: every third fails. The same with bwrap, which keeps no queue and no record."""
    n = args.crowd
    home = work / "crowd"
    home.mkdir(mode=0o700, exist_ok=True)
    env = {**os.environ, "FORGE_HOME": str(home)}
    view = same_view()
    spent, right = {"forge submit": [], "bwrap, same view": []}, []
    for _ in range(3):
        began = time.perf_counter()
        runs = [subprocess.Popen([*bwrap(view, work / "flat")[:-1], "/bin/sh", "-c", f"exit {i % 3 == 2:d}"])
                for i in range(n)]
        for i, run in enumerate(runs):
            assert run.wait() == (i % 3 == 2)
        spent["bwrap, same view"].append(time.perf_counter() - began)
        began = time.perf_counter()
        runs = [subprocess.Popen([FORGE, "submit", "--", "/bin/sh", "-c", f"exit {i % 3 == 2:d}"], env=env,
                                 stdout=subprocess.PIPE, text=True) for i in range(n)]
        ids = [run.communicate()[0].strip() for run in runs]
        submitted = time.perf_counter() - began
        done = ended(home, ids, time.monotonic() + 300)
        spent["forge submit"].append(time.perf_counter() - began)
        right.append(sum(done.get(run_id) == ("failed" if i % 3 == 2 else "succeeded")
                         for i, run_id in enumerate(ids)))
    base = statistics.median(spent["bwrap, same view"])
    table(f"{n} at once, on {os.cpu_count()} CPUs, 3 rounds", ["", "s", "runs/s", "x bwrap"],
          [[name, f"{statistics.median(t):.2f}", f"{n / statistics.median(t):.0f}",
            f"{base / statistics.median(t):.2f}"] for name, t in spent.items()])
    print(f"  right verdicts: {', '.join(f'{r} of {n}' for r in right)}; "
          f"the last time all were confirmed after {submitted:.2f} s")


def conda_environment(prefix, packages, scripts):
    """What conda would have made: records of so many packages, a Python, activate.d."""
    for name in ("conda-meta", "bin", "etc/conda/activate.d", "lib/python3.11/site-packages"):
        (prefix / name).mkdir(parents=True)
    (prefix / "conda-meta" / "history").touch()
    (prefix / "bin" / "python").symlink_to("/usr/bin/python3")
    for i in range(packages):
        record = {"name": f"p{i}", "version": f"1.{i}", "build": "0", "md5": f"{i:032x}", "sha256": f"{i:064x}",
                  "url": f"https://c.example/linux-64/p{i}-1.{i}-0.conda", "subdir": "linux-64", "depends": [],
                  "files": [f"lib/python3.11/site-packages/p{i}/f{j}.py" for j in range(200)]}
        (prefix / "conda-meta" / f"p{i}-1.{i}-0.json").write_text(json.dumps(record))
    for i in range(scripts):
        (prefix / "etc/conda/activate.d" / f"{i}.sh").write_text(f'export V{i}="$CONDA_PREFIX/share/{i}"\n')


def bench_runtime(_args, work):
    """Entering a conda environment of 300 packages, without conda."""
    home = work / "conda"
    env = {**os.environ, "HOME": str(home), "FORGE_HOME": str(work / "conda-state")}
    program = pathlib.Path(FORGE).parents[2] / "bench/bench-runtime"
    rows = []
    for name in ("condabin", "conda-meta"):
        (home / "miniconda3" / name).mkdir(parents=True)
    (home / "miniconda3/conda-meta/history").touch()
    for name, scripts in (("plain", 0), ("scripts", 4)):
        prefix = home / "miniconda3/envs" / name
        conda_environment(prefix, 300, scripts)
        subprocess.run(["chmod", "-R", "go+rX", home], check=True)
        subprocess.run([FORGE, "run", "-q", "-r", name, "--", "true"], env=env, check=True)
        entered, digest = subprocess.run([program, name], env=env, check=True, capture_output=True,
                                         text=True).stdout.split()
        rows.append([f"300 packages, {scripts} scripts", entered, digest])
    source = f"for s in {home}/miniconda3/envs/scripts/etc/conda/activate.d/*.sh; do . $s; done"
    began = time.perf_counter()
    for _ in range(50):
        subprocess.run(["bash", "-c", source], check=True)
    rows.append(["bash, sourcing the 4 scripts", f"{(time.perf_counter() - began) / 50 * 1e6:.0f}", "-"])
    rows.append(["micromamba run, as published", "79000", "-"])
    rows.append(["conda run, as published", "630000", "-"])
    table("entering a conda environment", ["", "us", "digest, us"], rows)


def collecting_ms(home):
    """From `collecting` to the verdict, of the newest run."""
    newest = max((home / "runs").iterdir())
    times = {}
    for line in (newest / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        times.setdefault(event["event"], event["time"])
    stamp = [time.mktime(time.strptime(t[:19], "%Y-%m-%dT%H:%M:%S")) * 1000 + int(t[20:23])
             for t in (times["collecting"], times["succeeded"])]
    return stamp[1] - stamp[0]


def bench_hash(_args, _work):
    """Collecting on a tmpfs, where nobody waits for a disk, next to sha256sum there."""
    many = "mkdir o; i=0; while [ $i -lt 4000 ]; do head -c 64K /dev/urandom >o/$i; i=$((i+1)); done"
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        place = pathlib.Path(name)
        place.chmod(0o755)
        config, home = place / "forge.yaml", place / "home"
        home.mkdir(mode=0o700)
        (place / "work").mkdir()
        config.write_text(f"version: 1\nworkdir: {place}/work/{{run_id}}\n")
        env = {**os.environ, "FORGE_HOME": str(home), "FORGE_CONFIG": str(config)}
        for what, script, size in (("one file of 512 MiB", "mkdir o; head -c 512M /dev/urandom >o/a", 512),
                                   ("4000 files of 64 KiB", many, 250)):
            plain, ours = [], []
            for _ in range(5):
                subprocess.run([FORGE, "run", "-q", "--memory", "4G", "-o", "o/**", "--", "sh", "-c", script],
                               env=env, check=True)
                ours.append(collecting_ms(home))
                shutil.rmtree(place / "copy", ignore_errors=True)
                shutil.copytree(home / "objects", place / "copy")
                began = time.perf_counter()
                subprocess.run(f"find {place}/copy -type f -print0 | xargs -0 sha256sum >/dev/null", shell=True,
                               check=True)
                plain.append((time.perf_counter() - began) * 1000)
                shutil.rmtree(home / "objects")
            base, mine = statistics.median(plain), statistics.median(ours)
            rows.append([what, f"{base:.0f}", f"{mine:.0f}", f"{size / mine * 1000:.0f}", f"{base / mine:.2f}"])
    table("Collecting and hashing outputs, 5 rounds",
          ["", "sha256sum ms", "forge ms", "MiB/s", "x sha256sum"], rows)


MILLION_SQL = """
INSERT INTO analyses SELECT 'a' || i, '2026-01-01T00:00:00.000Z' FROM {series_small};
INSERT INTO runs (run_id, analysis_id, status, reason, notes, executor, host, username, created_at, started_at,
 ended_at, exit_code, wall_usec, memory_peak, pid, pid_start, boot_id, record)
 SELECT {run_id}, 'a' || (i % 1000), CASE WHEN i % 50 = 7 THEN 'failed' ELSE 'succeeded' END, 'exit',
 'Succeeded in 2 ms (memory 512.00 KiB of 2.00 GiB).', 'local', 'bench', 'root', '2026-01-01T00:00:00.000Z',
 '2026-01-01T00:00:00.010Z', '2026-01-01T00:00:00.020Z', i % 50 / 49, i % 100000, i % 500000 * 4096, 1, 1,
 'boot', {record} FROM {series};
INSERT INTO run_events SELECT {run_id}, e, '2026-01-01T00:00:00.000Z', 'supervisor', 'event', NULL, NULL
 FROM {series}, {series_events};
INSERT INTO outputs SELECT {run_id}, 'outputs/result.csv', 1000,
 'sha256:' || {digest}, 'objects/' || {digest} FROM {series};
"""


def fill_store(url, load, n):
    """Makes n runs by SQL. The environment with this store."""
    env = {**os.environ, "FORGE_STORE": url}
    subprocess.run([FORGE, "run", "-q", "--", "true"], env=env, check=True)
    record = subprocess.run([FORGE, "ps", "--json", "-n", "1"], env=env, check=True, capture_output=True,
                            text=True).stdout
    run_id = json.loads(record)["run_id"]
    text = subprocess.run([FORGE, "show", "--json", run_id], env=env, check=True, capture_output=True,
                          text=True).stdout
    padded = json.dumps({**json.loads(text), "pad": "x" * max(0, 2000 - len(text))}).replace("'", "''")
    load(padded, run_id, n)
    return env


def serve(url, load, n, rounds):
    """Requests to `forge serve` on n runs: milliseconds of pages that no cache has, and requests a second by wrk."""
    env = fill_store(url, load, n)
    server = subprocess.Popen([FORGE, "serve", "--listen", "127.0.0.1:0", "--json"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        said = json.loads(server.stdout.readline())
        headers = {"Authorization": "Bearer " + said["token"]}
        client = http.client.HTTPConnection(said["url"].removeprefix("http://"), timeout=60)
        rows = []
        for what, path in [("first page", "/api/v1/runs?"), ("... of those that failed", "/api/v1/runs?status=failed&"),
                           ("a page in the middle", f"/api/v1/runs?after=00{n // 2:024d}&"), ("overview", "/api/v1/overview"), ("runs of one user", "/api/v1/runs?user=nobody&"),
                           ("those with one reason", "/api/v1/runs?reason=memory&"), ("those with most memory", "/api/v1/runs?sort=memory&"),
                           ("failed, the longest", "/api/v1/runs?status=failed&sort=wall&"), ("a name that none has", "/api/v1/runs?analysis=*none*&")]:
            spent = []
            for i in range(rounds):
                # The same question in 34 ways: the server keeps 32 answers. The overview has one answer for all.
                other = f"limit={'0' * (i % 17)}50&open={('0', 'false')[i // 17 % 2]}"
                target = path + (other if path[-1] in "?&" else "")
                began = time.perf_counter()
                client.request("GET", target, headers=headers)
                answer = client.getresponse()
                body = answer.read()
                spent.append((time.perf_counter() - began) * 1000)
                assert answer.status == 200, body
            spent.sort()
            rows.append([what, f"{statistics.median(spent):.1f}", f"{spent[int(rounds * 0.99) - 1]:.1f}"])
        wrk = subprocess.run(["wrk", "-t1", "-c16", "-d5", "-H", "Authorization: " + headers["Authorization"], said["url"] + "/api/v1/runs"],
                             check=True, capture_output=True, text=True).stdout
        rate = re.search(r"Requests/sec:\s+([0-9.]+)", wrk).group(1)
        rss = re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.pid}/status").read_text()).group(1)
        return rows, float(rate), int(rss) // 1024
    finally:
        server.terminate()
        server.wait()


def million(url, load, n):
    """Medians of the commands on n runs, made by SQL in the tables that forge has made."""
    env = fill_store(url, load, n)
    some = f"00{n // 2:024d}"
    commands = {"forge ps": ["ps"], "forge show RUN": ["show", some],
                "forge ps --status failed": ["ps", "--status", "failed"],
                "forge ps --analysis a7": ["ps", "--analysis", "a7"]}
    result = {}
    for name, words in commands.items():
        spent = []
        for _ in range(30):
            began = time.perf_counter()
            done = subprocess.run([FORGE, *words], env=env, check=True, capture_output=True)
            spent.append((time.perf_counter() - began) * 1000)
            assert done.stdout
        result[name] = (statistics.median(spent), max(spent))
    return result


def load_sqlite(home):
    """What fills the embedded store of this FORGE_HOME."""
    def load(record, _run_id, n):
        def series(most):
            return f"(WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < {most} - 1) SELECT i FROM s)"
        sql = MILLION_SQL.format(
            series=series(n), series_small=series(1000), run_id="printf('00%024d', i)", record=f"'{record}'",
            series_events="(SELECT 0 AS e UNION SELECT 1 UNION SELECT 2 UNION SELECT 3)",
            digest="printf('%064x', i)")
        subprocess.run(["sqlite3", str(home / "forge.db")], check=True, text=True,
                       input=f"PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000; BEGIN; {sql} COMMIT; PRAGMA wal_checkpoint(TRUNCATE);",
                       stdout=subprocess.DEVNULL)
    return load


def load_postgres(url):
    def load(record, _run_id, n):
        sql = MILLION_SQL.format(
            series=f"generate_series(0, {n} - 1) AS i", series_small="generate_series(0, 999) AS i",
            run_id="'00' || lpad(i::text, 24, '0')", record=f"'{record}'",
            series_events="generate_series(0, 3) AS e", digest="lpad(to_hex(i), 64, '0')")
        subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", url], check=True, text=True,
                       input=f"SET synchronous_commit = off; BEGIN; {sql} COMMIT; ANALYZE;")
    return load


def million_home(work, name):
    home = work / name
    home.mkdir(mode=0o700)
    os.environ["FORGE_HOME"] = str(home)
    return home


def bench_million(args, work):
    n = args.runs
    results = {}
    home = million_home(work, "million")
    results["SQLite"] = million(f"sqlite:{home}/forge.db", load_sqlite(home), n)
    url = os.environ.get("FORGE_TEST_PG")
    if url:
        results["PostgreSQL"] = million(url, load_postgres(url), n)
    else:
        print("\nPostgreSQL left out: run it by tests/tools/with-postgres.sh")
    table(f"With {n:,} runs in the store, 30 rounds, ms", ["", "store", "median", "most"],
          [[name, store, f"{t[0]:.1f}", f"{t[1]:.1f}"] for store, by in results.items() for name, t in by.items()])
    os.environ["FORGE_HOME"] = str(work / "home")


def bench_server(args, work):
    """forge serve on a store of a million runs."""
    if not shutil.which("wrk"):
        print("\nleft out: wrk is not installed")
        return
    n = args.runs
    home = million_home(work, "server")
    results = {"SQLite": serve(f"sqlite:{home}/forge.db", load_sqlite(home), n, args.rounds)}
    url = os.environ.get("FORGE_TEST_PG")
    if url:
        results["PostgreSQL"] = serve(url, load_postgres(url), n, args.rounds)
    else:
        print("\nPostgreSQL left out: run it by tests/tools/with-postgres.sh")
    table(f"forge serve with {n:,} runs in the store, {args.rounds} requests, ms", ["", "store", "median", "p99"],
          [[row[0], store, *row[1:]] for store, (rows, _, _) in results.items() for row in rows])
    table("... and by 16 clients at once for 5 s, first page", ["store", "requests/s", "MiB resident"],
          [[store, f"{rate:.0f}", rss] for store, (_, rate, rss) in results.items()])
    os.environ["FORGE_HOME"] = str(work / "home")


SNAKEFILE = """rule all:
    input: expand("out/{{i}}", i=range({n}))
rule one:
    output: "out/{{i}}"
    shell: "echo {{wildcards.i}} >{{output}}"
"""
PIPELINE = """name: trivial
params: {{n: [{values}]}}
steps:
  one: {{foreach: {{i: $n}}, run: "echo $i >out", outputs: [out]}}
"""


def spend(argv, where, home):
    """Seconds of a command, and peak MiB of its largest process; not less than those of this one, which it is forked from."""
    began = time.perf_counter()
    run = subprocess.Popen(argv, cwd=where, env={**os.environ, "FORGE_HOME": str(home)}, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode != 0:
        raise RuntimeError(f"{argv[0]}: status {run.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def write_pipeline(where, n):
    """The same n steps for both."""
    where.mkdir()
    (where / "home").mkdir(mode=0o700)
    (where / "Snakefile").write_text(SNAKEFILE.format(n=n))
    (where / "pipeline.yaml").write_text(PIPELINE.format(values=", ".join(map(str, range(n)))))
    return where


def bench_pipeline(args, work):
    """Trivial steps, the same when all is done, and a large graph planned: forge and snakemake in turn."""
    peer = f"snakemake -c{os.cpu_count()}"
    tools = {"forge pipeline run": [FORGE, "pipeline", "run"], peer: [*peer.split(), "-q"]}
    if not shutil.which("snakemake"):
        del tools[peer]
        print("\nsnakemake is not installed: forge alone")
    n, rounds, again = args.steps, max(1, min(args.rounds // 60, 3)), 5
    # What no engine can be below: the shells of these steps, and these shells in sandboxes without limits or records.
    crowd = ["sh", "-c", f"seq {n} | xargs -P{os.cpu_count()} -I{{}} \"$@\" bash -c 'echo {{}} >out-{{}}'", "sh"]
    floors = {"the shells alone, by xargs -P": crowd}
    if shutil.which("bwrap"):
        floors["bwrap alone, by xargs -P"] = [*crowd, *bwrap(same_view(), work)[:-1]]
    bare = {name: [] for name in floors}
    ran, done, planned = ({name: [] for name in tools} for _ in range(3))
    for i in range(rounds):
        where = write_pipeline(work / f"steps-{i}", n)
        for name in random.sample(list(tools), len(tools)):
            ran[name].append(spend(tools[name], where, where / "home"))
        for name in floors:
            bare[name].append(spend(floors[name], work, work / "home"))
        for _ in range(again):
            for name in random.sample(list(tools), len(tools)):
                done[name].append(spend(tools[name], where, where / "home"))
    where = write_pipeline(work / "graph", 10 * n)
    for _ in range(rounds):
        for name in random.sample(list(tools), len(tools)):
            planned[name].append(spend([*tools[name], "-n"], where, where / "home"))
    ran |= bare
    for title, figures, unit in (
            (f"{n:,} trivial steps, {os.cpu_count()} CPUs, {rounds} rounds", ran, "s"),
            (f"The same again, everything up to date, {rounds * again} rounds", done, "ms"),
            (f"A graph of {10 * n:,} steps planned (-n), {rounds} rounds", planned, "s")):
        medians = {name: statistics.median(seconds for seconds, _ in spent) for name, spent in figures.items()}
        factor, digits = (1e3, 0) if unit == "ms" else (1, 2)
        table(title, ["", unit, f"least {unit}", "peak MiB", "x forge"],
              [[name, f"{medians[name] * factor:.{digits}f}", f"{min(spent)[0] * factor:.{digits}f}",
                f"{max(peak for _, peak in spent):.0f}", f"{medians[name] / medians['forge pipeline run']:.2f}"]
               for name, spent in figures.items()])


def library(name, text, env=None):
    """What a function of tests/lib prints; its daemons go on."""
    lib = HERE.parent / "tests/lib" / f"{name}.bash"
    return subprocess.run(["bash", "-c", f". {lib}; {text}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False,
                          env={**os.environ, **(env or {})}).stdout.strip()


@contextlib.contextmanager
def service(lib, start, title):
    """A service of tests/lib: its directory, or None where this host cannot have it. Ends with the block."""
    variable = f"FORGE_{lib.upper()}"
    missing = library(lib, f"{lib}_missing")
    if missing:
        print(f"\n{title} needs {missing}; left out")
        yield None
        return
    where = library(lib, f'{start} >&2; echo "${variable}"')
    try:
        yield where
    finally:
        library(lib, f"{lib}_remove", {variable: where})


def declare(work, name, row):
    """A configuration with this executor; the file has its name."""
    config = work / f"{name}.yaml"
    config.write_text(f"executors: {{{name}: {{{row}}}}}\n")
    return config


def compare(args, title, own, config, *options):
    """true by the client of an engine, own (its name and its words), and by forge there."""
    forge = [FORGE, "run", "--config", str(config), "--executor", config.stem, "-q", *options, "--", "true"]
    good, bad = take_turns({own[0]: own[1], "forge run": forge}, min(args.rounds, 20))
    over_table(title, good, bad, own[0])


def over_table(title, good, bad, own):
    """What forge adds to the client of an engine."""
    if own in good:
        base = statistics.median(good[own])
        rows = [[name, f"{statistics.median(spent):.1f}", f"{min(spent):.1f}",
                 f"{statistics.median(spent) - base:+.1f}", f"{statistics.median(spent) / base:.2f}"]
                for name, spent in good.items()]
        table(title, ["start to end of true, ms", "median", "least", f"+ {own}", f"x {own}"], rows)
    for name, why in bad.items():
        print(f"  {name} left out: {why}")


def bench_docker(args, work):
    """A container of Docker: by its own client, and by forge."""
    with service("engines", "engines_make && engine_start docker", "Docker") as where:
        if not where:
            return
        row = f"kind: container, socket: {where}/docker.sock, image: tiny"
        own = ["docker", "-H", f"unix://{where}/docker.sock", "run", "--rm", "--network", "none", "--read-only",
               "--memory", "2g", "--pids-limit", "512", "--cap-drop", "ALL", "tiny", "true"]
        compare(args, "In a container of Docker", ("docker run", own), declare(work, "docker", row))


def cpu_and_memory(pid):
    """CPU seconds of a process and of its children that have ended, and its memory in MiB."""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def is_watcher(pid):
    """Whether it is the watcher of our FORGE_HOME."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        env = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False
    return words[:2] == [b"forge", b"__watch"] and f"FORGE_HOME={os.environ['FORGE_HOME']}".encode() in env


def watch_many(n, config, where):
    """One watcher of n jobs that wait."""
    for i in range(n):
        subprocess.run([FORGE, "submit", "--config", str(config), "--executor", "slurm", "--memory", "64M", "--", "sleep",
                        "3600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    watchers = [p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_watcher(p)]
    time.sleep(10)
    before, seconds = cpu_and_memory(watchers[0])[0], 60
    time.sleep(seconds)
    after, memory = cpu_and_memory(watchers[0])
    table(f"{n} jobs of a Slurm cluster, one squeue in 5 s", ["", "% of a core", "MiB", "processes"],
          [["forge, and the squeue that it runs", f"{100 * (after - before) / seconds:.2f}", f"{memory:.1f}",
            len(watchers)]])
    subprocess.run([FORGE, "kill", "-f", "*"], stdout=subprocess.DEVNULL, check=False)
    library("slurm", "slurm scancel -u root", {"FORGE_SLURM": where})


def bench_slurm(args, work):
    """A job of Slurm: by sbatch --wait, and by forge; and what many jobs cost that are waited for."""
    with service("slurm", "slurm_make", "Slurm") as where:
        if not where:
            return
        config = declare(work, "slurm", f"kind: slurm, dir: {work}/shared, slurm_conf: {where}/slurm.conf")
        os.environ["SLURM_CONF"] = f"{where}/slurm.conf"
        own = ["sbatch", "--wait", "-Q", "--mem=64M", "-o", "/dev/null", "--wrap", "true"]
        compare(args, "As a job of Slurm", ("sbatch --wait", own), config, "--memory", "64M")
        watch_many(args.jobs, config, where)


LAMBDA = "/usr/share/doc/bowtie2/examples"
# What people run. Left out where the program is not installed.
ANALYSES = {
    "bowtie2: phage lambda, 10,000 reads": (["/usr/bin/bowtie2", f"{LAMBDA}/reads/reads_1.fq.gz"], ["sh", "-c",
        f"gunzip -c {LAMBDA}/reference/lambda_virus.fa.gz >ref.fa && bowtie2-build -q ref.fa index && "
        f"bowtie2 -x index -U {LAMBDA}/reads/reads_1.fq.gz -S out.sam 2>log"]),
    "scikit-learn: breast cancer, 300 trees": (["/usr/lib/python3/dist-packages/sklearn"], ["/usr/bin/python3", "-c",
        "from sklearn.datasets import load_breast_cancer\nfrom sklearn.ensemble import RandomForestClassifier\n"
        "x, y = load_breast_cancer(return_X_y=True)\n"
        "print(RandomForestClassifier(300, random_state=1).fit(x, y).score(x, y), file=open('out', 'w'))"]),
    "dd: 200 MiB in blocks of 64 KiB": ([], ["dd", "if=/dev/zero", "of=out", "bs=64k", "count=3200", "status=none"]),
    "computes, writes lines": ([], ["/usr/bin/python3", "-c",
        "f = open('out', 'w')\nfor i in range(1500000): f.write('%d\\n' % (i * i))"]),
}
# Nothing but system calls.
WRITERS = {
    "200,000 writes of 100 bytes": "import os\nf = os.open('out', os.O_WRONLY | os.O_CREAT)\n"
                                   "for i in range(200000): os.write(f, b'x' * 100)",
    "20,000 files made and deleted": "import os\nfor i in range(20000): open('f%d' % i, 'w').write('x')\n"
                                     "for i in range(20000): os.unlink('f%d' % i)",
}


def guard_config(path, text):
    path.write_text("version: 1\n" + text)
    return {**os.environ, "FORGE_CONFIG": str(path)}


def run_record(argv, env):
    run = subprocess.run([FORGE, "run", "--json", "--", *argv], env=env, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def end_watcher(home):
    """Otherwise it would see the next run, too, for two seconds."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"__guard" in (path / "cmdline").read_bytes() and \
                    f"FORGE_HOME={home}\0".encode() in (path / "environ").read_bytes():
                os.kill(int(path.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass


def guard_watch(title, commands, plain, guarded, pairs):
    rows = []
    for name, argv in commands.items():
        spent = {"plain": [], "guarded": []}
        for i in range(pairs):
            for kind in ("plain", "guarded") if i % 2 else ("guarded", "plain"):
                usage = run_record(argv, plain if kind == "plain" else guarded)["usage"]
                spent[kind].append((usage["wall_seconds"], usage["cpu_seconds"]))
                end_watcher(os.environ["FORGE_HOME"])
        row = [name]
        for k in (0, 1):
            medians = [statistics.median(one[k] for one in spent[kind]) for kind in ("plain", "guarded")]
            row += [f"{medians[0]:.3f}", f"{medians[1]:.3f}",
                    f"{statistics.median(g[k] / p[k] for g, p in zip(spent['guarded'], spent['plain'])):.3f}"]
        rows.append(row)
    table(f"A run that touches no guarded file, {title}, {pairs} pairs",
          ["", "wall s", "watched", "ratio", "CPU s", "watched", "ratio"], rows)


def guard_snapshot(tree, plain, work, rounds):
    """Two snapshots are in a run: before and after."""
    env = guard_config(work / "snapshot.yaml", f"guard: {{paths: [{tree}], mode: snapshot}}\n")
    spent = {"find": [], "snapshot": []}
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(["find", str(tree), "-printf", "%p %s %T@ %C@ %i %m %U %G\n"], stdout=subprocess.DEVNULL, check=True)
        spent["find"].append(time.perf_counter() - began)
        took = []
        for one in (plain, env):
            began = time.perf_counter()
            run_record(["/bin/true"], one)
            took.append(time.perf_counter() - began)
        spent["snapshot"].append((took[1] - took[0]) / 2)
    find, snapshot = (statistics.median(spent[name]) for name in ("find", "snapshot"))
    table(f"100,000 guarded files, {rounds} rounds", ["", "ms", "x find"],
          [["find -printf", f"{find * 1e3:.0f}", "1.00"],
           ["a snapshot", f"{snapshot * 1e3:.0f}", f"{snapshot / find:.2f}"]])


def guard_start(kinds, rounds):
    """Milliseconds of forge run -- true, in turns."""
    spent = {name: [] for name in kinds}
    for _ in range(rounds):
        for name in random.sample(list(kinds), len(kinds)):
            began = time.perf_counter()
            subprocess.run([FORGE, "run", "-q", "--", "/bin/true"], env=kinds[name], check=True)
            spent[name].append((time.perf_counter() - began) * 1e3)
    base = statistics.median(spent[next(iter(kinds))])
    table(f"forge run -q true, {rounds} rounds", ["", "median ms", "more"],
          [[name, f"{statistics.median(ms):.2f}", f"{statistics.median(ms) - base:+.2f}"] for name, ms in spent.items()])


def bench_guard(args, work):
    tree = work / "tree"
    for i in range(100000):
        if i % 1000 == 0:
            (tree / str(i // 1000)).mkdir(parents=True)
        os.close(os.open(tree / str(i // 1000) / str(i), os.O_CREAT | os.O_WRONLY))
    none = guard_config(work / "none.yaml", "health: {disk: {kind: disk, when: demand}, memory: {kind: memory, when: demand}}\n")
    plain = guard_config(work / "plain.yaml", "")
    guarded = guard_config(work / "guarded.yaml", f"guard: {{paths: [{tree}]}}\n")
    pairs = max(3, min(args.rounds // 10, 12))
    if os.geteuid() == 0:
        analyses = {name: argv for name, (needed, argv) in ANALYSES.items() if all(map(os.path.exists, needed))}
        writers = {name: ["/usr/bin/python3", "-c", code] for name, code in WRITERS.items()}
        guard_watch("analyses", analyses, plain, guarded, pairs)
        guard_watch("the worst cases", writers, plain, guarded, pairs)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
            place = f"workdir: {other}/{{run_id}}\n"
            guard_watch("workdir on another file system", writers, guard_config(work / "other-plain.yaml", place),
                        guard_config(work / "other.yaml", place + f"guard: {{paths: [{tree}]}}\n"), pairs)
    guard_snapshot(tree, plain, work, pairs)
    guard_start({"no checks": none, "usual checks": plain, "and a guard": guarded}, args.rounds)
    end_watcher(os.environ["FORGE_HOME"])


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


def bench_python(args, _work):
    """forge.run(["true"]) next to `forge run -q true`, in pairs, in one process."""
    sys.path.insert(0, str(HERE.parent / "python"))
    os.environ["FORGE_BINARY"] = os.path.abspath(FORGE)
    import forge  # pylint: disable=import-outside-toplevel,import-error

    argv = [forge.binary(), "run", "-q", "true"]

    def with_package():
        began = time.perf_counter_ns()
        forge.run(["true"], check=True)
        return (time.perf_counter_ns() - began) / 1e6

    pairs = []
    for i in range(args.rounds + 5):
        if i % 2:
            pairs.append((once(argv), with_package()))
        else:
            package = with_package()
            pairs.append((once(argv), package))
    pairs = [pair for pair in pairs[5:] if pair[0]]
    table(f"From Python, {len(pairs)} pairs", ["", "median ms", "least ms", "ratio of pairs"], [
        ["forge run -q true", f"{statistics.median(a for a, _ in pairs):.2f}", f"{min(a for a, _ in pairs):.2f}", "1.00"],
        ['forge.run(["true"])', f"{statistics.median(b for _, b in pairs):.2f}", f"{min(b for _, b in pairs):.2f}",
         f"{statistics.median(b / a for a, b in pairs):.2f}"],
    ])


PARTS = {"start": bench_start, "memory": bench_memory, "flood": bench_flood, "kill": bench_kill,
         "flat": bench_flat, "store": bench_store, "crowd": bench_crowd, "hash": bench_hash, "runtime": bench_runtime,
         "million": bench_million, "pipeline": bench_pipeline, "docker": bench_docker, "slurm": bench_slurm, "guard": bench_guard, "guest": bench_guest,
         "python": bench_python, "server": bench_server}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--flood-mib", type=int, default=2048)
    parser.add_argument("--crowd", type=int, default=500, help="runs at once")
    parser.add_argument("--jobs", type=int, default=1000, help="jobs of a cluster at once")
    parser.add_argument("--steps", type=int, default=1000, help="steps of a pipeline; ten times as many are planned")
    parser.add_argument("--runs", type=int, default=1000000, help="rows of the million")
    parser.add_argument("--million", action="store_true", help="also with a million runs in the store")
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
            wanted = part in args.parts or (not args.parts and part not in ("million", "server"))
            if wanted or (part in ("million", "server") and args.million):
                bench(args, work)


if __name__ == "__main__":
    main()
