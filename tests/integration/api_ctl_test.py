#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpuobsctl against the API over a made-up daemon: output, JSON, exit codes.

usage: api_ctl_test.py GPUOBSCTL FAKE_DAEMON SCHEDULER NVML BLOCK_TIME_OBJECT
"""
import glob
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time

ctl, fake_daemon, scheduler, nvml, block_time = sys.argv[1:6]
work = tempfile.mkdtemp(prefix="gpuobs-ctl-")
socket = os.path.join(work, "gpuobsd.sock")
env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUOBS_", "CUDA_"))}


def run(*args, want=0, program=ctl, **kwargs):
    kwargs.setdefault("env", env)
    r = subprocess.run([program, *args], capture_output=True, text=True, timeout=30, **kwargs)
    assert r.returncode == want, f"{args}: exit {r.returncode}, not {want}: {r.stdout}{r.stderr}"
    return r


def asked(*args, want=0):
    return run("--socket", socket, *args, want=want)


def rows(*args, want=0):
    return [json.loads(line) for line in asked("--json", *args, want=want).stdout.splitlines()]


def absent_daemon():
    r = run("status", "--socket", socket, want=3)
    assert r.stderr.startswith("gpuobsd is not running; start it with: systemctl start gpuobsd\n")
    assert socket in r.stderr
    r = run("status", want=3, env={**env, "GPUOBS_SOCKET": socket})
    assert "is not running" in r.stderr


def no_permission():
    closed = os.path.join(work, "closed")
    os.mkdir(closed, 0o700)
    os.chmod(work, 0o755)
    for file in [ctl, *glob.glob(os.path.join(os.path.dirname(ctl), "libgpuobs.so.?"))]:
        shutil.copy(file, work)  # the build may lie where others cannot read
    r = run("status", "--socket", closed + "/s", want=4, program=os.path.join(work, os.path.basename(ctl)),
            env={**env, "LD_LIBRARY_PATH": work}, preexec_fn=lambda: os.setresuid(65534, 65534, 65534))
    assert "group gpuobs" in r.stderr


def usage():
    for args in [(), ("nonsense",), ("status", "x"), ("status", "--nope"), ("ps", "--pid"),
                 ("ps", "--pid", "-3"), ("launches", "--since", "soon"), ("run",),
                 ("launches", "--follow", "--since", "1s"), ("launches", "--limit", "10001"), ("--socket",),
                 ("launches", "--pid", "0"), ("kernels", "--since", "1s", "--until", "2s"), ("probe", "unload")]:
        r = run(*args, want=2)
        assert r.stderr and not r.stdout, args
    for args, text in [(("view", "sm", "--for", "soon"), "view: --for: \"soon\" is not"),
                       (("uvm", "--history", "--step", "soon"), "uvm: --step: \"soon\" is not"),
                       (("launches", "-fxy"), "no option -x"), (("policy", "frobnicate"), "no command \"frobnicate\"")]:
        assert text in run(*args, want=2).stderr, args
    assert "launches" in run("help").stdout
    assert run("--version").stdout.startswith("gpuobsctl ")
    commands = re.findall(r"^  (\w+) ", run("help").stdout, re.M)
    assert {"launches", "uvm", "detach"} < set(commands), commands
    for command in set(commands) - {"help"}:
        assert run(command, "--help").stdout == run("help", command).stdout
        assert f"gpuobsctl {command}" in run(command, "--help").stdout
        wide = [line for line in run("help", command).stdout.splitlines() if len(line) > 80]
        assert not wide, (command, wide)
    assert all(len(line) <= 80 for line in run("help").stdout.splitlines())


def not_installed():
    """What is to be found in the places of an installation says where it was looked for."""
    r = run("policy", "load", "no_such_policy", want=1)
    assert re.search(r"no_such_policy: No such file or directory, neither here nor in /\S+/policies$", r.stderr), r.stderr
    assert run("policy", "load", "/no/such", want=1).stderr.endswith("/no/such: No such file or directory\n")
    r = run("policy", "simulate", want=1, env={**env, "GPUOBS_SIMULATE": "/nonexistent"})
    assert "/nonexistent: No such file or directory; install gpuobsd whole" in r.stderr, r.stderr
    # --json goes along, wherever it stands
    echo = {**env, "GPUOBS_SIMULATE": "/bin/echo"}
    assert run("--json", "policy", "simulate", "--list", env=echo).stdout == "--list --json\n"
    assert run("policy", "simulate", "--list", env=echo).stdout == "--list\n"


def status():
    out = asked("status").stdout
    for piece in ["GPU 0", "ptimer", "-4.780 ppm", "150 seen, 120 stored, 30 lost", "no_agent"]:
        assert piece in out, (piece, out)
    (s,) = rows("status")
    assert s["losses"]["lost"] == 30 and s["gpus"][0]["drift_ppb"] == -4780
    assert "clock_error_ns" not in s["gpus"][0]  # absent, not null or zero


def ps():
    all_rows = rows("ps")
    assert [p["pid"] for p in all_rows] == [101, 102, 103, 104, 105]
    assert all_rows[0]["depth"] == 3 and "depth" not in all_rows[1]
    lines = asked("ps", "--pid", "101").stdout.splitlines()
    assert len(lines) == 2 and lines[0].split()[:3] == ["PID", "UID", "COMMAND"]
    # numbers are right-aligned under their titles
    assert lines[1].index("10 ") + 2 == lines[0].index("LAUNCHES") + len("LAUNCHES")
    assert len(rows("ps", "--pid", "999")) == 0


def launches():
    r = asked("launches")
    lines = r.stdout.splitlines()
    assert len(lines) == 101 and lines[0].startswith("KERNEL")
    assert "k" * 2047 in lines[1]  # piped: nothing is cut
    assert "30 of 150 launches were lost" in r.stderr
    assert "cpu_ring_full 15" in r.stderr
    assert [x["launch_id"] for x in rows("launches", "--limit", "3")] == [98, 99, 100]
    # 100 rows of 2 KiB names and limit 0: pages are put together, each row once
    assert [x["launch_id"] for x in rows("launches", "--limit", "0")] == list(range(1, 101))


def follow():
    got = rows("launches", "--follow", "--limit", "25", "--kernel", "kernel_[12]")
    assert len(got) == 25 and {x["kernel"] for x in got} <= {"kernel_1", "kernel_2"}
    assert got[0]["match"] == "exact" and got[0]["end"] == "measured"
    lines = asked("launches", "-f", "--limit", "5").stdout.splitlines()
    assert len(lines) == 6 and lines[0].startswith("KERNEL")
    # the start was 50 ns before the call's return: shown as it is
    assert all("-50 ns" in line and "650 ns" in line for line in lines[1:])


def kernels():
    lines = asked("kernels").stdout.splitlines()
    assert len(lines) == 3 and lines[1].split()[0] == "busy"
    assert lines[2].split()[0] == "-"  # a kernel whose name is not known
    assert rows("kernels")[0]["execution"]["p99_ns"] == 120
    assert "more kernels" in asked("kernels", "--limit", "1").stderr


def coverage():
    out = asked("coverage").stdout
    assert "10 images, 5 rewritten; 30 kernels, start probed 100.0 %, end probed 66.7 %" in out
    assert re.search(r"10  no free uniform register", out)
    assert len(rows("coverage")) == 10
    assert len(rows("coverage", "--kernels", "--pid", "103")) == 6
    try:
        import ctypes
        ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return
    assert "add(float*, float*)" in asked("coverage", "--kernels").stdout


def driver():
    lines = asked("calls", "--pid", "101").stdout.splitlines()
    assert len(lines) == 4 and lines[0].split()[:3] == ["PROCESS", "CALL", "OF"]
    assert "rm alloc" in lines[2] and "channel group" in lines[2] and "status 0x1a" in lines[2]
    assert "rm 0xee" in lines[3]
    assert len(rows("calls")) == 12
    lines = asked("groups").stdout.splitlines()
    assert len(lines) == 9 and "compute" in lines[1] and "copy" in lines[2] and "0xc1d00001" in lines[1]
    assert [g["object"] for g in rows("groups", "--pid", "102")] == [0x20, 0x30]


def share():
    r = asked("share", "--since", "1000d")
    lines = r.stdout.splitlines()
    assert lines[0].startswith("GPU 0  "), lines
    # 2 us in the boot's whole time: one character, of whoever had most of it
    assert set(lines[0][14:]) <= set(".ABC?") and len(lines[0]) == 80
    assert "A  app/101" in r.stdout and "B  app/102" in r.stdout
    table = [line.split() for line in lines if line.lstrip().startswith("0 ")]
    assert table[0][:3] == ["0", "app/101", "50.0"] and table[1][:5] == ["0", "(not", "known)", "30.0", "%"]
    assert any("(idle)" in line and "14.0 %" in line for line in lines)
    assert "3 context switches were lost" in r.stderr
    lines = asked("share", "--follow", "--limit", "2").stdout.splitlines()
    assert len(lines) == 2 and all(re.match(r"\d\d:\d\d:\d\d GPU 0 [A-Z.]+ .*app/10\d", line) for line in lines), lines
    got = rows("share", "-f", "--limit", "7", "--pid", "103")
    assert len(got) == 7 and {x["pid"] for x in got} == {103}
    got = rows("share")
    assert [x["active_ns"] for x in got] == [8000, 0, 5000, 3000]


def gpus():
    for _ in range(100):
        r = asked("gpus")
        if "being opened" not in r.stderr:
            break
        time.sleep(0.2)
    lines = r.stdout.splitlines()
    assert len(lines) == 3 and lines[0].split()[:3] == ["GPU", "NAME", "LOAD"], (r.stdout, r.stderr)
    for piece in ["Simulated New", "97 %", "60.0 GiB", "1980 MHz", "612 W", "64 °C", "12+1", "power cap, hardware thermal"]:
        assert piece in lines[1], (piece, lines[1])
    assert "Simulated Old" in lines[2] and "97 %" not in lines[2]
    new, old = rows("gpus")
    assert new["gpu"] == 4 and new["memory_total"] == 80 << 30 and new["throttle_mask"] == 0x44
    assert "utilization" not in old and old["gpu"] == 7 and old["xids"] == 0
def uvm():
    out = asked("uvm").stdout
    for piece in ["refused", "made up", "6.0 MiB in 3", "0x600000", "64.0 KiB", "add(float*, float*)"]:
        assert piece in out, (piece, out)
    processes = rows("uvm")
    assert [p["pid"] for p in processes] == [101, 102] and processes[0]["produced"] == 10
    lines = asked("uvm", "--follow", "--limit", "1").stdout.splitlines()
    assert len(lines) == 4 and lines[1].split()[3] == "all" and lines[2].split()[3] == "0x600000", lines
    events = rows("uvm", "--events", "--limit", "20", "--pid", "102")
    assert len(events) == 20 and {e["pid"] for e in events} == {102}
    assert {e["kind"] for e in events} == {"gpu_fault", "migration"}
    assert len(asked("uvm", "--events", "--limit", "5").stdout.splitlines()) == 6
    run("uvm", "--watch", want=2)
    run("uvm", "--watch", "--follow", want=2)
    assert asked("uvm", "--watch", "--pid", "101").stdout == ""
    assert "made up" in asked("uvm", "--watch", "--pid", "102", want=1).stderr
    asked("uvm", "--watch", "--pid", "999", want=1)


def decisions():
    out = asked("uvm", "--driver").stdout
    for piece in ["service_fault_batch", "made up", "GPU-00000000-0000-0000-0000-0000000000ab", "4.00 µs",
                  "GPU memory emptied for: allocation 1; holding: allocated 1", "32.0 KiB", "eviction",
                  "the driver offers struct_ops: gpu_mem_ops"]:
        assert piece in out, (piece, out)
    assert "3 events were lost" in asked("uvm", "--driver").stderr
    lines = asked("uvm", "--decisions").stdout.splitlines()
    assert len(lines) == 5 and "batch 5: 12 faults, 9 distinct, 3 duplicate" in lines[1], lines
    assert "brings 8 pages from 0x240000 to 0x248000" in lines[2] and "gpu#1" in lines[2], lines
    assert "allocated at 0x800000" in lines[3] and "status 0x51" in lines[4], lines
    assert [d["point"] for d in rows("uvm", "--decisions")] == ["batch", "prefetch", "pick", "move"]
    assert [d["pid"] for d in rows("uvm", "--decisions", "--pid", "102")] == [102]
    assert len(rows("uvm", "--decisions", "--limit", "2")) == 2
    run("uvm", "--driver", "--decisions", want=2)


def history():
    lines = asked("uvm", "--history").stdout.splitlines()
    assert len(lines) == 4 and lines[1].split()[1:6] == ["101", "app", "2", "100", "0"], lines
    assert [p["start_ns"] for p in rows("uvm", "--history", "--step", "10s")] == [10, 20, 30]
    assert len(rows("uvm", "--history", "--limit", "1")) == 1
    for args in [("--step", "10s"), ("--since", "1h"), ("--history", "--step", "500ms"), ("--history", "--step", "2d")]:
        run("uvm", *args, want=2)


def doctor():
    checks = {c["name"]: c for c in rows("doctor", want=1)}
    assert checks["bad"] == {"name": "bad", "state": "broken", "finding": "it does not", "advice": "Do something."}
    assert checks["fine"]["state"] == "ok" and checks["daemon"]["state"] == "ok" and "kernel" in checks
    lines = asked("doctor", want=1).stdout.splitlines()
    bad = next(i for i, line in enumerate(lines) if line.split()[:2] == ["broken", "bad"])
    assert lines[bad + 1].strip() == "-> Do something." and lines[-1].endswith("broken"), lines


def losses():
    out = asked("losses").stdout
    assert "150 launches seen, 120 stored, 30 lost, 0 on their way" in out
    assert re.search(r"cpu_ring_full\s+15\s+launch events", out)
    left = re.search(r"nothing was lost in the other (\d+) ways", out)
    everything = asked("losses", "--all").stdout
    causes = [line.split() for line in everything.splitlines() if re.match(r"[a-z]+_[a-z_]+ +\d+ ", line)]
    assert sum(c[1] == "0" for c in causes) == int(left[1]) and "nothing was lost" not in everything, everything
    assert all(c[1] == "0" or re.search(rf"{c[0]} +{c[1]} ", out) for c in causes)
    (report,) = rows("losses")
    assert len(report["processes"]) == 5 and report["losses"]["lost"] == 30


def on_terminal(columns, *args, want=0):
    """Lines on a terminal of so many columns."""
    pid, fd = pty.fork()
    if pid == 0:
        import fcntl, struct, termios
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execve(ctl, [ctl, "--socket", socket, *args], env)
    out = b""
    while True:
        try:
            piece = os.read(fd, 4096)
        except OSError:
            break
        if not piece:
            break
        out += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == want
    return re.sub("\033\\[\\d*m", "", out.decode().replace("\r", "")).splitlines()


def terminal():
    """On a terminal no line is wider: long names give way, sentences go on below their beginning."""
    lines = [line for line in on_terminal(120, "launches", "--limit", "4") if not line.startswith("gpuobsctl:")]
    assert len(lines) == 5 and all(len(line) <= 120 for line in lines), lines
    assert "…" in lines[1] and lines[0].startswith("KERNEL")
    narrow, wide = on_terminal(60, "doctor", want=1), on_terminal(10000, "doctor", want=1)
    assert len(narrow) > len(wide), (narrow, wide)
    # what says of the kernel says the same each time
    first, again = (" ".join(lines).partition(" pid_namespace ")[0].split() for lines in (narrow, wide))
    assert first == again, (first, again)
    assert all(len(line) <= 60 or " " not in line[34:] for line in narrow), narrow
    assert any(line.startswith(34 * " ") for line in narrow)


def run_command():
    agent = os.path.join(work, "agent.so")
    open(agent, "w").close()
    with_agent = {**env, "GPUOBS_AGENT_LIBRARY": agent}
    show = ["run", "--socket", socket, "--", "sh", "-c", "echo $CUDA_INJECTION64_PATH $GPUOBS_AGENT_SOCKET; exit 7"]
    r = run(*show, want=7, env=with_agent)
    assert r.stdout.split() == [agent, os.path.join(work, "agent.sock")] and not r.stderr
    r = run(*show, want=2, env={**with_agent, "CUDA_INJECTION64_PATH": "/other.so"})
    assert "/other.so" in r.stderr
    r = run(*show, want=1, env={**env, "GPUOBS_AGENT_LIBRARY": "/nonexistent.so"})
    assert "/nonexistent.so cannot be read" in r.stderr and "install gpuobsd" in r.stderr
    run("run", "--socket", socket, "/nonexistent/program", want=127, env=with_agent)
    r = run("run", "--socket", socket, "--", "sh", "-c", "kill -TERM $$", want=-15, env=with_agent)
    # an option of the program is not ours
    assert run("run", "--socket", socket, "echo", "--json", env=with_agent).stdout == "--json\n"


def maps():
    """All pages of a map that needs two are of one reading; in the made-up ones all values are its number."""
    first = rows("map", "dump", "made_up", "began", "--each")
    assert len(first) == 16384 and {tuple(r["value"]) for r in first} == {(1,)}, first[-1]
    second = rows("map", "dump", "made_up", "began", "--each")
    assert len(second) == 16384 and {tuple(r["value"]) for r in second} == {(2,)}, second[-1]
    assert {r["probe"] for r in rows("map", "list")} == {"made_up"}
    r = asked("map", "dump", "made_up", "no_such_map", want=1)
    assert not r.stdout and re.match(r"gpuobsctl: map [^()]*\n$", r.stderr), r


def unobserved_run():
    agent = os.path.join(work, "agent.so")
    r = run("run", "--socket", socket, "--", "true", env={**env, "GPUOBS_AGENT_LIBRARY": agent})
    assert "gpuobsd is not running; true will not be observed" in r.stderr


def scheduler_client():
    r = subprocess.run([scheduler, "3"], capture_output=True, text=True, timeout=30,
                       env={**env, "GPUOBS_SOCKET": socket})
    assert r.returncode == 0, r.stderr
    assert re.search(r"^[1-9]\d* launches, 0\.00 us average queue delay, 0 unseen$", r.stdout, re.M), r.stdout
    assert "pid 101: 3 launches queued" in r.stdout


def check(test):
    test()
    print("ok", test.__name__, flush=True)


if os.geteuid() != 0:
    print("SKIP: changing user ids needs root")
    sys.exit(77)
check(absent_daemon)
check(no_permission)
check(usage)
check(not_installed)
daemon = subprocess.Popen([fake_daemon, socket, block_time], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "FIXTURE_NVML": nvml})
said = daemon.stdout.readline()
if said.startswith("SKIP"):
    print(said)
    sys.exit(77)
assert said == "ready\n"
for test in [status, ps, launches, follow, kernels, coverage, driver, share, gpus, uvm, decisions, history,
             doctor, losses, terminal, run_command, scheduler_client, maps]:
    check(test)
daemon.stdin.close()
assert daemon.wait(20) == 0
check(unobserved_run)
