# SPDX-License-Identifier: Apache-2.0
"""A gpuobsd of the build directory, for tests: started, asked, stopped.

What it prints goes to DIR/daemon.log. Tests that cannot run here call skip().
"""
import json
import os
import subprocess
import sys
import tempfile
import time


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def wait_for(seconds, condition, what):
    """what: a text, or a function that makes it when the time is over."""
    deadline = time.monotonic() + seconds
    over = False
    while not over:
        over = time.monotonic() >= deadline  # whoever was stopped meanwhile looks once more
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")


def check_soon(seconds, action, what, tries=5):
    """What waits for somebody waits each time; what else the machine does holds up one or the other."""
    took = []
    while not took or (min(took) >= seconds and len(took) < tries):
        began = time.monotonic()
        action()
        took.append(time.monotonic() - began)
    check(min(took) < seconds, f"{what}: {took} s")


def check_once(attempt, enough, what, tries=3):
    """attempt() checks what must always hold, and returns a figure that is to be enough: where a machine stands still
    for a moment it may not be, as a call that takes long is given up; what is wrong with us spoils each attempt."""
    figures = []
    while not figures or (not enough(figures[-1]) and len(figures) < tries):
        figures.append(attempt())
    check(enough(figures[-1]), f"{what}: {figures}")


class Daemon:
    def __init__(self, build, settings=(), directory=None, preexec=None, config=None):
        if os.geteuid() != 0:
            skip("eBPF needs root")
        self.build = build
        self.own_directory = tempfile.TemporaryDirectory(prefix="gpuobs-test-")
        self.directory = self.own_directory.name
        self.database = os.path.join(directory or self.directory, "launches.db")
        self.api = os.path.join(self.directory, "api.sock")
        self.agent = os.path.join(self.directory, "agent.sock")
        self.ctl_path = os.path.join(build, "libclient/gpuobsctl")
        self.sim_directory = os.path.join(build, "tests/simcuda")
        self.sim_launch = os.path.join(build, "tests/integration/sim_apps/sim_launch")
        self.settings = [f"database={self.database}", f"api_socket={self.api}", f"agent_socket={self.agent}",
                         f"device_program={build}/probes/launch.bpf.o",
                         f"library={self.sim_directory}/libcuda.so.1", *settings]
        self.preexec = preexec
        self.config = os.path.join(self.directory, "gpuobsd.conf") if config is not None else None
        if self.config:
            self.configure(config)
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        self.stop()
        if kind:
            print("daemon said:\n" + self.said()[-3000:])
        self.own_directory.cleanup()

    def start(self):
        command = [os.path.join(self.build, "daemon/gpuobsd")]
        if self.config:
            command += ["--config", self.config]
        for s in self.settings:
            command += ["--set", s]
        with open(os.path.join(self.directory, "daemon.log"), "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=self.preexec)
        wait_for(60, lambda: self.alive() and self.ctl("status", check_code=False), "gpuobsd answers")

    def configure(self, text):
        with open(self.config, "w", encoding="utf-8") as f:
            f.write(text)

    def said(self):
        with open(os.path.join(self.directory, "daemon.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def alive(self):
        check(self.process.poll() is None, f"gpuobsd ended with {self.process.returncode}")
        return True

    def turn(self):
        """Has looked at its rings and at what policies want since: it does so more often, and before it answers."""
        time.sleep(0.1)
        self.ctl("status")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def rss_kib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))

    def ctl(self, *arguments, check_code=True):
        p = subprocess.run([self.ctl_path, "--socket", self.api, *arguments], text=True, check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check_code:
            check(p.returncode == 0, f"gpuobsctl {arguments}: {p.returncode} {p.stderr}")
        return p.stdout if p.returncode == 0 else ""

    def agent_ctl(self, *arguments, fails=None, under=()):
        """gpuobsctl attach or detach with the agent of the build directory; fails: what it is to say; under: a
        command that runs it."""
        env = dict(os.environ, GPUOBS_AGENT_LIBRARY=os.path.join(self.build, "probes/agent/libgpuobs-agent.so"))
        p = subprocess.run([*under, self.ctl_path, "--socket", self.api, *map(str, arguments)], env=env, text=True,
                           check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        if fails is not None:
            check(p.returncode != 0 and fails in p.stderr, f"{arguments}: {p.returncode} {p.stderr}")
        else:
            check(p.returncode == 0, f"{arguments}: {p.returncode} {p.stderr}")
        return p.stdout

    def json_rows(self, *arguments):
        return [json.loads(line) for line in self.ctl(*arguments, "--json").splitlines() if line.strip()]

    def process_key(self, pid):
        """Processes are numbered as they come."""
        return next(i for i, p in enumerate(self.json_rows("ps"), 1) if p["pid"] == pid)

    def environment(self, agent=True, **more):
        env = {**os.environ, "LD_LIBRARY_PATH": self.sim_directory, **more}
        if agent:
            env["CUDA_INJECTION64_PATH"] = os.path.join(self.build, "probes/agent/libgpuobs-agent.so")
            env["GPUOBS_AGENT_SOCKET"] = self.agent
        return env

    def popen(self, *arguments, agent=True, **more):
        """sim_launch; with --until-input it ends when finish() or communicate() closes its input."""
        return subprocess.Popen([self.sim_launch, *arguments], env=self.environment(agent, **more), text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *arguments, agent=True, timeout=300, **more):
        """Run sim_launch; what it says it did, as a dictionary of numbers and texts."""
        p = self.popen(*arguments, agent=agent, **more)
        out, err = p.communicate(timeout=timeout)
        check(p.returncode == 0, f"sim_launch {arguments}: {p.returncode} {err}")
        said = dict(line.split(" ", 1) for line in out.splitlines() if " " in line)
        said["pid"] = p.pid
        return said

    def ledger(self, pid):
        rows = json.loads(self.ctl("losses", "--json", "--pid", str(pid)))["processes"]
        return rows[-1]["losses"] if rows else None

    def settled(self, pid, seconds=60):
        """The ledger once nothing is on its way any more: it adds up, and does so a little later."""
        last = None

        def done():
            nonlocal last
            before, last = last, self.ledger(pid)
            return last if last and last["produced"] and last == before and \
                last["produced"] == last["stored"] + last["lost"] else None
        return wait_for(seconds, done, lambda: f"ledger of {pid} settles; last {last}")


# What the programs of Application begin with.
CUDA = r'''
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
'''


class Application:
    """A Python program that calls the driver, says a line when it is ready and one after each line it is told."""

    preamble = CUDA

    def __init__(self, daemon, code, *arguments, **environment):
        self.process = subprocess.Popen([sys.executable, "-c", self.preamble + code, *map(str, arguments)],
                                        env=daemon.environment(**environment), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.ready = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        check(line, f"the application ended with {self.process.poll()}")
        return line.rstrip("\n")

    def do(self, text):
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        """Nothing more is told."""
        self.process.communicate(timeout=30)
        check(self.process.returncode == 0, f"the application ended with {self.process.returncode}")
