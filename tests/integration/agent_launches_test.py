#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launches recorded by the agent, through the whole daemon, on the simulated GPU.

usage: agent_launches_test.py GPUOBSD GPUOBSCTL AGENT DEVICE_PROGRAM SIMCUDA SIM_LAUNCH

The same application with agent_launches = yes and = no must leave the same
records. Where somebody else probes the launch functions the kernel's probes
stay. A daemon that dies takes nothing with it, and one that comes later sees
the launches again.
"""
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

gpuobsd, ctl, agent, program, simcuda, sim_launch = (os.path.abspath(a) for a in sys.argv[1:7])
TRACING = "/sys/kernel/tracing/uprobe_events"
work = tempfile.mkdtemp(prefix="gpuobs-launches-")
# A copy of its own, so that nobody else's probes are on it.
library = os.path.join(work, "libcuda.so.1")
shutil.copy(os.path.realpath(simcuda), library)
env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUOBS_", "CUDA_"))}
env.update({"LD_LIBRARY_PATH": work, "CUDA_INJECTION64_PATH": agent,
            "GPUOBS_AGENT_SOCKET": os.path.join(work, "agent.sock")})


def skip(reason):
    print(reason)
    sys.exit(77)


class Daemon:
    """gpuobsd with a database of its own."""

    def __init__(self, name, *settings):
        self.db = os.path.join(work, name + ".db")
        self.log_path = os.path.join(work, name + ".log")
        self.settings = [f"database={self.db}", f"api_socket={work}/api.sock", f"agent_socket={work}/agent.sock",
                         f"device_program={program}", f"library={library}", "log_level=debug", *settings]
        self.pid = 0

    def __enter__(self):
        command = [gpuobsd]
        for s in self.settings:
            command += ["--set", s]
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(600):
            if self.process.poll() is not None:
                text = self.log()
                if "does not let gpuobsd load eBPF" in text:
                    skip("not allowed to load eBPF programs here")
                sys.exit("gpuobsd ended: " + text)
            if subprocess.run([ctl, "--socket", f"{work}/api.sock", "status"], capture_output=True,
                              check=False).returncode == 0:
                return self
            time.sleep(0.1)
        sys.exit("gpuobsd did not answer: " + self.log())

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)

    def log(self):
        with open(self.log_path, encoding="utf-8") as f:
            return f.read()

    def by_agent(self):
        """Launches that the application's process recorded by itself; None: it did not."""
        m = re.search(rf"process {self.pid} \(sim_launch\) recorded (\d+) launches by itself", self.log())
        return int(m[1]) if m else None

    def wait_for(self, what, condition):
        for _ in range(600):
            if condition():
                return
            assert self.process.poll() is None, self.log()
            time.sleep(0.1)
        raise AssertionError(f"not within a minute: {what}; {self.log()}")

    def is_stored(self, launches):
        try:
            return self.query("SELECT count(*) FROM OURS")[0][0] >= launches
        except sqlite3.OperationalError:  # the writer makes the tables in its own time
            return False

    def has_ended(self):
        """It knows that the application has, and has said who recorded its launches."""
        rows = subprocess.run([ctl, "--socket", f"{work}/api.sock", "ps", "--json", "--pid", str(self.pid)],
                              capture_output=True, text=True, check=True).stdout.splitlines()
        return rows and not json.loads(rows[0])["alive"]

    def query(self, sql):
        """OURS stands for the launches of the application: others may run on the machine."""
        with sqlite3.connect(f"file:{self.db}?mode=ro", uri=True) as db:
            return db.execute(sql.replace("OURS", f"(SELECT * FROM launches WHERE pid = {self.pid})")).fetchall()


def start(*args):
    return subprocess.Popen([sim_launch, *args], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(app):
    text, _ = app.communicate(timeout=120)
    assert app.returncode == 0, app.returncode
    return dict(line.split() for line in text.splitlines())


def others_run(d):
    found = subprocess.run(["pgrep", "-x", "gpuobsd"], capture_output=True, text=True, check=False).stdout.split()
    return found != [str(d.process.pid)]


def observe(name, *args, settings=()):
    """Run the application under a daemon of its own; the daemon, and what it printed."""
    with Daemon(name, *settings) as d:
        app = start(*args)
        d.pid = app.pid
        d.others = others_run(d)
        said = finish(app)
        d.others = d.others or others_run(d) or "somebody else has a probe" in d.log()
        d.wait_for("its launches are stored", lambda: d.is_stored(int(said["launches"])))
        d.wait_for("its end is known", d.has_ended)
    return d, said


FIELDS = "kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, result"


def records(d):
    """Launches of each thread in order, threads sorted by what they did."""
    threads = {}
    for tid, *row in d.query(f"SELECT tid, {FIELDS} FROM OURS ORDER BY tid, cpu_enter_ns"):
        threads.setdefault(tid, []).append(tuple(row))
    return sorted(threads.values())


def check_times(d):
    # How well they are joined with device records is the correlator's affair (daemon_test.py).
    impossible = d.query("SELECT count(*) FROM OURS WHERE cpu_return_ns < cpu_enter_ns"
                         " OR gpu_end_ns < gpu_start_ns - clock_error_ns")
    assert impossible == [(0,)], (d.db, impossible)


def same_records():
    for args in (["-n", "2000", "-t", "1", "-s", "2", "--copy", "9", "--memset", "7", "--sync", "50"],
                 ["-n", "1500", "-t", "4", "-s", "2", "--copy", "9", "--memset", "7", "--sync", "50"],
                 ["-n", "600", "-t", "2", "--extended", "-b", "256"],
                 ["-n", "600", "-t", "2", "--per-thread", "--library"]):
        kernel, said_kernel = observe("no", *args, settings=["agent_launches=no"])
        self, said_self = observe("yes", *args)
        issued = int(said_self["launches"])
        assert said_kernel["checksum"] == said_self["checksum"]
        assert kernel.by_agent() is None
        # Where another gpuobsd runs it may have found the library, and the kernel goes on.
        if not self.others:
            assert self.by_agent() is not None and self.by_agent() >= issued, self.log()
        for d in (kernel, self):
            assert d.query("SELECT count(*) FROM OURS") == [(issued,)], \
                (d.db, d.query("SELECT kernel, count(*) FROM OURS GROUP BY 1"), d.by_agent())
            check_times(d)
        assert records(kernel) == records(self)
        print(f"ok {' '.join(args)}: {issued} records, {self.by_agent()} launches by the agent")
        os.unlink(kernel.db)
        os.unlink(self.db)


def symbol_offset(name):
    text = subprocess.run(["readelf", "-W", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    value = int(re.search(rf"^\s*\d+:\s+([0-9a-f]+)\s.*\s{name}$", text, re.M)[1], 16)
    text = subprocess.run(["readelf", "-W", "-l", library], capture_output=True, text=True, check=True).stdout
    for m in re.finditer(r"LOAD\s+0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)", text):
        offset, address, size = (int(x, 16) for x in m.groups())
        if address <= value < address + size:
            return value - address + offset
    raise AssertionError(name)


def foreign_probe():
    if not os.path.exists(TRACING):
        print("skipped: no tracefs to place a probe of somebody else with")
        return

    def trace(line):
        fd = os.open(TRACING, os.O_WRONLY | os.O_APPEND)
        os.write(fd, line.encode() + b"\n")
        os.close(fd)

    trace(f"p:gpuobs_test/launch_{os.getpid()} {library}:{symbol_offset('cuLaunchKernel'):#x}")
    try:
        d, said = observe("foreign", "-n", "500", "-t", "2")
    finally:
        trace(f"-:gpuobs_test/launch_{os.getpid()}")
    assert "left to the kernel: somebody else has a probe" in d.log(), d.log()
    assert d.by_agent() is None
    assert d.query("SELECT count(*) FROM OURS") == [(int(said["launches"]),)]
    print("ok a probe of somebody else")


def dead_daemon():
    args = ["-t", "2", "-s", "1", "-k", "spin", "--spin-ns", "100000"]
    alone = subprocess.run([sim_launch, "-n", "1000", *args], env={k: v for k, v in env.items() if k != "CUDA_INJECTION64_PATH"},
                           capture_output=True, text=True, check=True).stdout
    with Daemon("dies") as d:
        app = start("--until-input", *args)
        d.pid = app.pid
        d.wait_for("launches are seen", lambda: d.is_stored(1))
        seen = d.query("SELECT count(*) FROM OURS")[0][0]
        d.process.send_signal(signal.SIGKILL)
        d.process.wait()
        assert app.poll() is None
        with Daemon("follows") as next_daemon:
            next_daemon.pid = app.pid
            next_daemon.wait_for("the next sees launches", lambda: next_daemon.is_stored(1))
            said = finish(app)
    assert f"checksum {said['checksum']}" in alone
    later = next_daemon.query("SELECT count(*) FROM OURS")[0][0]
    issued = int(said["launches"])
    assert 0 < later < issued - seen, (seen, later, issued)
    print(f"ok a daemon that is killed: {seen} of {issued} launches seen before, {later} by the next")


def main():
    if os.geteuid() != 0:
        skip("needs root to load eBPF programs")
    same_records()
    foreign_probe()
    dead_daemon()


try:
    main()
except BaseException:
    if os.environ.get("KEEP"):
        print("kept", work)
    else:
        shutil.rmtree(work, ignore_errors=True)
    raise
shutil.rmtree(work)
