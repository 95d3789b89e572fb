# SPDX-License-Identifier: Apache-2.0
"""What the GPU checks share: the packed tree, programs and their logs, a daemon of its own, records."""
import argparse
import ctypes
import functools
import glob
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

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CARRY = os.path.join(TOP, ".carry")
PREFIX = "/opt/gpuobsd"
RUN = "/run/gpuobsd-test"
SKIP = 77  # the exit code of programs that say so
rows = []
options = argparse.Namespace()  # filled in by run


class Failed(Exception):
    """A check found something wrong."""


class Skipped(Exception):
    """This machine lacks what the check is about."""


def report(name, ok, text):
    rows.append((name, {True: "ok", False: "FAILED", None: "skipped"}[ok], text))
    print(f"== {name}: {rows[-1][1]}: {text}", flush=True)


def tail(text):
    return " | ".join(text.strip().splitlines()[-3:])[-300:]


def run(command, log, env=None, timeout=300, check=True):
    """Run a command, append its output to the log, return (stdout, seconds)."""
    name = os.path.basename(command[0])
    full = dict(os.environ)
    full.update(env or {})
    started = time.monotonic()
    said = None
    with open(os.path.join(options.out, log + ".log"), "a", encoding="utf-8") as f:
        f.write(f"$ {' '.join(command)}   {env or ''}\n")
        f.flush()
        # Through a file: what was said is there even when all of this is cut off.
        fd, path = tempfile.mkstemp(prefix=log + ".", suffix=".log", dir=options.out)
        try:
            with os.fdopen(fd, "w+", encoding="utf-8", errors="replace") as out:
                try:
                    code = subprocess.run(command, env=full, timeout=timeout, stdout=out, stderr=subprocess.STDOUT,
                                          check=False).returncode
                except subprocess.TimeoutExpired:
                    code = None
                out.seek(0)
                said = out.read()
        finally:
            if said is not None:
                os.unlink(path)
        f.write(said)
        f.write(f"[exit {code}, {time.monotonic() - started:.2f} s]\n")
    if code is None:
        raise Failed(f"{name} took longer than {timeout} s; its last words: {tail(said)}")
    if check and code == SKIP:
        raise Skipped(tail(said))
    if check and code:
        raise Failed(f"{name} exited with {code}: {tail(said)}")
    return said, time.monotonic() - started


def install():
    """Put the packed tree where it was built for."""
    root = os.path.join(CARRY, "root" + PREFIX)
    if not os.path.isdir(root):
        sys.exit("nothing packed: run tests/gpu/pack first and carry .carry/ along")
    shutil.rmtree(PREFIX, ignore_errors=True)
    shutil.copytree(root, PREFIX, symlinks=True)
    for directory, kind in (("/sys/kernel/tracing", "tracefs"), ("/sys/fs/bpf", "bpf")):
        if not os.path.ismount(directory):
            subprocess.run(["mount", "-t", kind, kind, directory], check=False)


def adopt():
    """Children of children whose parents end become ours, so that end_children() finds them."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def children():
    """{pid: name}; no name: it has ended."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                pid, name, rest = re.match(r"(\d+) \((.*)\) (.*)", f.read(), re.S).groups()
        except OSError:  # it has ended
            continue
        state, parent = rest.split()[:2]
        if int(parent) == os.getpid():
            found[int(pid)] = "" if state == "Z" else name
    return found


def end_children(check):
    """What a check that was cut off has left running would disturb the next one."""
    deadline, names = time.monotonic() + 10, set()
    while (left := children()) and time.monotonic() < deadline:
        for pid, name in left.items():
            names |= {name} - {""}
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
    if names:
        print(f"   {check} left running: {' '.join(sorted(names))}"
              f"{'; cannot be ended: ' + ' '.join(left.values()) if left else ''}", flush=True)


LIBS = {"LD_LIBRARY_PATH": f"{PREFIX}/lib:{CARRY}/lib"}


class Daemon:
    """gpuobsd with a database of its own."""

    def __init__(self, name, device=True, settings=()):
        self.name = name
        self.db = f"{RUN}/{name}.db"
        self.device = device
        self.settings = settings

    def __enter__(self):
        os.makedirs(RUN, exist_ok=True)
        for suffix in ("", "-wal", "-shm", ".undo"):
            if os.path.exists(self.db + suffix):
                os.unlink(self.db + suffix)
        self.start()
        return self

    def start(self):
        """Also again, after kill(): with the same database."""
        settings = [f"database={self.db}", f"api_socket={RUN}/api.sock", f"agent_socket={RUN}/agent.sock",
                    *self.settings]
        if not self.device:
            settings.append("device_program=")
        if options.trace:
            settings.append(f"trace={options.out}/{self.name}.trace")
        command = [f"{PREFIX}/bin/gpuobsd"]
        for s in settings:
            command += ["--set", s]
        self.log = open(os.path.join(options.out, "daemon.log"), "a", encoding="utf-8")
        self.log.write(f"--- {self.name}\n")
        self.log.flush()
        self.process = subprocess.Popen(command, env={**os.environ, **LIBS}, stdout=self.log, stderr=self.log)
        self.killed = False
        deadline = time.monotonic() + 30  # it waits for the GPUs for ten seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failed(f"gpuobsd ended with {self.process.returncode}; see daemon.log")
            if ctl(["status"], check=False)[1] == 0:
                return
            time.sleep(0.1)
        self.kill()
        raise Failed("gpuobsd did not answer within 30 s")

    def kill(self):
        """As a crash does: nothing is undone."""
        self.killed = True
        self.process.kill()
        self.process.wait()
        self.log.close()

    def __exit__(self, *_):
        self.rss_kib = 0
        if self.killed:  # and not started again
            return
        if self.process.poll() is None:
            self.rss_kib = rss(self.process.pid)
            self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            report(self.name + " stop", False, "gpuobsd did not stop within 15 s")
        else:
            if self.process.returncode:
                report(self.name + " stop", False, f"gpuobsd ended with {self.process.returncode}; see daemon.log")
        self.log.close()

    def launches(self, pid):
        """Rows of a process, after everything it did has been stored."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            ledger = self.ledger(pid)
            if ledger and ledger["produced"] and ledger["produced"] == ledger["stored"] + ledger["lost"]:
                break
            time.sleep(0.3)
        with sqlite3.connect(f"file:{self.db}?mode=ro", uri=True) as db:
            db.row_factory = sqlite3.Row
            return db.execute("SELECT * FROM launches WHERE pid = ? ORDER BY launch_id", (pid,)).fetchall()

    def ledger(self, pid):
        text, code = ctl(["losses", "--json", "--pid", str(pid)], check=False)
        if code:
            return None
        for row in json.loads(text)["processes"]:
            if row["pid"] == pid:
                return row["losses"]
        return None


def brief(ledger):
    if not ledger:
        return "no ledger"
    causes = " ".join(f"{c['cause']}={c['count']}" for c in ledger["causes"] if c["count"])
    return f"ledger {ledger['produced']} = {ledger['stored']} + {ledger['lost']} {causes}".strip()


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])


def ctl(arguments, check=True):
    p = subprocess.run([f"{PREFIX}/bin/gpuobsctl", "--socket", f"{RUN}/api.sock"] + arguments,
                       env={**os.environ, **LIBS}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       check=False, timeout=120)
    if check and p.returncode:
        raise Failed(f"gpuobsctl {' '.join(arguments)}: {p.stderr.strip()}")
    return p.stdout, p.returncode


def json_rows(*arguments, check=False):
    text, _ = ctl([*arguments, "--json"], check=check)
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def agent_env():
    library = f"{PREFIX}/lib/gpuobsd/libgpuobs-agent.so"
    return {"CUDA_INJECTION64_PATH": library, "GPUOBS_AGENT_SOCKET": f"{RUN}/agent.sock"}


def share(part, whole):
    return f"{100.0 * part / whole:.2f} %" if whole else "none"


def count(records, column, value):
    return sum(1 for r in records if r[column] == value)


def describe(records):
    n = len(records)
    started = sum(1 for r in records if r["gpu_start_ns"] is not None)
    measured = count(records, "end_kind", "measured")
    errors = sorted(r["clock_error_ns"] for r in records if r["clock_error_ns"] is not None)
    clock = f", clock error p50 {errors[len(errors) // 2]} ns" if errors else ""
    return (f"{n} records, exact {share(count(records, 'match', 'exact'), n)}, ordered "
            f"{share(count(records, 'match', 'ordered'), n)}, none {share(count(records, 'match', 'none'), n)}, "
            f"start {share(started, n)}, end measured {share(measured, n)}{clock}")


def pid_of(text):
    found = re.search(r"^pid (\d+)$", text, re.M)
    if not found:
        raise Failed("the program did not print its pid")
    return int(found[1])


def results_of(text):
    return [line for line in text.splitlines() if line.startswith("result ")]


def sane(records):
    """Times of matched records must be possible."""
    bad = 0
    for r in records:
        if r["gpu_start_ns"] is None:
            continue
        slack = r["clock_error_ns"] or 0
        if r["gpu_start_ns"] + slack < r["cpu_enter_ns"]:
            bad += 1
        elif r["gpu_end_ns"] is not None and r["gpu_end_ns"] + 64 < r["gpu_start_ns"]:
            bad += 1
    return bad


def program(name):
    path = os.path.join(CARRY, "bin", name)
    if not os.path.exists(path):
        raise Failed(f"{name} was not packed")
    return path


def named(name, original):
    """A copy of a program under a name of its own: policies tell processes apart by it."""
    return shutil.copy(program(original), os.path.join(tempfile.mkdtemp(), name))


def issued(text):
    return int(re.search(r"^launches (\d+)$", text, re.M)[1])


@functools.cache  # it takes seconds
def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], check=False, capture_output=True).returncode == 0


def torch_command(script, *arguments):
    """A script of this directory, by a Python that has PyTorch."""
    return [sys.executable if has_torch(sys.executable) else "python3", os.path.join(TOP, "tests/gpu", script),
            *arguments]


def wait_ready(processes):
    """Until each has printed that it begins. Those started before this is called start at the same time."""
    for p in processes:
        for line in p.stdout:
            if line == "ready\n":
                break
        else:
            raise Failed(f"{os.path.basename(p.args[0])} ended before it began")


def times(text, what):
    return [float(v) for v in re.findall(rf"^time {what} ([0-9.]+)$", text, re.M)]


def alternate(cases, measure, repeats):
    """Run the cases in turn, so that drift of the machine meets all alike: {name: [values]}."""
    values = {name: [] for name in cases}
    for _ in range(repeats):
        for name, setup in cases.items():
            values[name].append(measure(name, setup))
    return values
