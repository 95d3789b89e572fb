#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpuobsctl attach to processes that are in no state for it, on the simulated GPU.

usage: attach_trouble_test.py BUILD

Such as have not loaded anything yet: launches are seen from the first on. Such as are confined by
seccomp: whatever their filter does, they live on, and work as before.
"""
import os
import sqlite3
import subprocess
import sys

from daemon import Application, Daemon, check, wait_for

BUILD = os.path.abspath(sys.argv[1])
NANOSLEEP, CLOCK_NANOSLEEP = "35", "230"

# Takes steps as it is told; between them its main thread waits in select().
STEPS = r'''
import ctypes, ctypes.util, os, select, struct, sys, threading

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry nothing()
{
ret;
}
"""
KILL, ERRNO, ALLOW = 0x80000000, 0x50001, 0x7fff0000
SECCOMP, MEMFD_CREATE, SOCKET, CONNECT, OPENAT, KEXEC_LOAD = 317, 319, 41, 42, 257, 246
libc = ctypes.PyDLL(None)  # keeps the interpreter's lock: no system calls around the call
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()

def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)

def load():
    global cuda
    cuda = ctypes.CDLL("libcuda.so.1")

def init():
    call("cuInit", 0)

def retain():
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)

def load_module():
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"nothing")

def launch(count):
    for _ in range(int(count)):
        call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, None, None)
    call("cuCtxSynchronize")

def forbid(action, numbers, everywhere=True):
    """System calls of these numbers end so, in all threads or in this one."""
    code = [(0x20, 0, 0, 0)]  # the number
    for number in numbers:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, action)]
    code += [(0x06, 0, 0, ALLOW)]
    program = b"".join(struct.pack("HBBI", *i) for i in code)
    text = ctypes.create_string_buffer(program)
    head = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(SECCOMP, 1, int(everywhere), head) == 0

def forbid_elsewhere():
    """Only another thread is confined."""
    ready = threading.Event()
    def confined():
        forbid(KILL, [SOCKET], everywhere=False)
        ready.set()
        threading.Event().wait()
    threading.Thread(target=confined, daemon=True).start()
    ready.wait()

def be_strict():
    confine, read, byte = libc.prctl, libc.read, ctypes.create_string_buffer(1)
    print("done", flush=True)
    confine(22, 1, 0, 0, 0)
    read(0, byte, 1)

def leave():
    sys.stdout.flush()
    os._exit(0)  # other threads may wait for ever

CONFINE = {
    "kill": lambda: forbid(KILL, [MEMFD_CREATE, SOCKET, CONNECT, OPENAT]),
    "errno": lambda: forbid(ERRNO, [MEMFD_CREATE, SOCKET, CONNECT]),
    "files": lambda: forbid(ERRNO, [OPENAT]),
    "container": lambda: forbid(ERRNO, [KEXEC_LOAD]),
    "thread": forbid_elsewhere,
    "strict": be_strict,
}
STEP = {"load": load, "init": init, "context": retain, "module": load_module, "launch": launch,
        "confine": lambda how: CONFINE[how]()}

print("ready", flush=True)
while True:
    select.select([0], [], [])
    line = os.read(0, 64).decode().split()
    if not line:
        leave()
    STEP[line[0]](*line[1:])
    print("done", flush=True)
'''

def has_driver():
    """Whether this machine has one, found without being told where."""
    return "libcuda.so.1" in subprocess.run(["/sbin/ldconfig", "-p"], text=True, check=False, stdout=subprocess.PIPE).stdout


CUDA_STEPS = ("load", "init", "context", "module")


class Stepwise(Application):
    preamble = ""

    def __init__(self, d):
        super().__init__(d, STEPS, agent=False)

    def steps(self, *steps):
        for step in steps:
            check(self.do(step) == "done", step)


def starts(d, pid):
    """Of all launches of a process: whether each has a start and an end from the GPU, in order."""
    with sqlite3.connect(f"file:{d.database}?mode=ro", uri=True) as db:
        return [bool(s) and e == "measured" for s, e in
                db.execute("SELECT gpu_start_ns, end_kind FROM launches WHERE pid = ? ORDER BY cpu_enter_ns", (pid,))]


def when(d, done):
    """Attached to after these steps: launches of what is loaded then are seen, each one."""
    app = Stepwise(d)
    app.steps(*CUDA_STEPS[:done])
    d.agent_ctl("attach", app.pid)
    app.steps(*CUDA_STEPS[done:], "launch 10")
    app.end()
    d.settled(app.pid)
    check(starts(d, app.pid) == [True] * 10, f"attached after {done} steps: {starts(d, app.pid)}")
    print(f"ok attached after {CUDA_STEPS[:done]}")


def left_again(d):
    """Attached to and left before anything of CUDA was there."""
    app = Stepwise(d)
    d.agent_ctl("attach", app.pid)
    d.agent_ctl("attach", app.pid, fails="attached to already")
    d.agent_ctl("detach", app.pid)
    app.steps(*CUDA_STEPS, "launch 10")
    app.end()
    d.settled(app.pid)
    check(starts(d, app.pid) == [False] * 10, f"left: {starts(d, app.pid)}")
    print("ok left again")


def sleeps(pid):
    """Within the system call that it is there for."""
    with open(f"/proc/{pid}/comm", encoding="ascii") as name, open(f"/proc/{pid}/syscall", encoding="ascii") as call:
        return name.read() == "sleep\n" and call.read().split()[0] in (NANOSLEEP, CLOCK_NANOSLEEP)


def without_cuda(d):
    """A program that has nothing to do with CUDA, where there is a driver, and where there is none."""
    cases = [(subprocess.Popen(["sleep", "8"], env=dict(os.environ, LD_LIBRARY_PATH=path)), fails)
             for path, fails in ((d.sim_directory, None), ("/nonexistent", "cannot: libcuda.so.1"))]
    for p, fails in cases:
        wait_for(20, lambda p=p: sleeps(p.pid), "sleep sleeps")
        if fails is None or not has_driver():
            d.agent_ctl("attach", p.pid, fails=fails)
    for p, _ in cases:
        check(p.wait(60) == 0, f"sleep ended with {p.returncode}")
    print("ok without CUDA")


def second_module(d):
    """One that cannot be found, loaded before; and one loaded after attach."""
    app = Stepwise(d)
    app.steps(*CUDA_STEPS, "launch 5")
    d.agent_ctl("attach", app.pid)
    app.steps("launch 5", "module", "launch 10")
    app.end()
    d.settled(app.pid)
    check(starts(d, app.pid) == [False] * 10 + [True] * 10, f"starts: {starts(d, app.pid)}")
    print("ok a second module")


def refused(d, confine, options, says):
    """A filter that must not be met, or an agent that cannot do its work."""
    app = Stepwise(d)
    app.steps(*CUDA_STEPS, f"confine {confine}")
    d.agent_ctl("attach", *options, app.pid, fails=says)
    app.steps("launch 10")
    app.end()
    d.settled(app.pid)
    check(starts(d, app.pid) == [False] * 10, f"{confine}: {starts(d, app.pid)}")
    print(f"ok {confine} {options}: {says}")


def seccomp(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(line.split()[1] for line in f if line.startswith("Seccomp:"))


def strict(d):
    app = Stepwise(d)
    app.steps("load", "confine strict")
    wait_for(20, lambda: seccomp(app.pid) == "1", "strict mode")
    for options in ((), ("--allow-seccomp",)):
        d.agent_ctl("attach", *options, app.pid, fails="strict mode")
    check(app.process.poll() is None, "strict mode did not end it")
    app.process.kill()
    app.process.wait()
    print("ok strict")


def permitted(d):
    app = Stepwise(d)
    app.steps(*CUDA_STEPS[:-1], "confine container")
    d.agent_ctl("attach", app.pid, fails="give --allow-seccomp")
    d.agent_ctl("attach", "--allow-seccomp", app.pid)
    app.steps("module", "launch 10")
    d.agent_ctl("detach", app.pid, fails="give --allow-seccomp")
    d.agent_ctl("detach", "--allow-seccomp", app.pid)
    app.end()
    d.settled(app.pid)
    check(starts(d, app.pid) == [True] * 10, f"starts: {starts(d, app.pid)}")
    print("ok a filter like a container's")


def main():
    with Daemon(BUILD) as d:
        for done in range(len(CUDA_STEPS)):
            when(d, done)
        left_again(d)
        without_cuda(d)
        second_module(d)
        refused(d, "kill", (), "start it under gpuobsctl run")
        refused(d, "thread", (), "start it under gpuobsctl run")
        refused(d, "errno", ("--allow-seccomp",), "gpuobsd cannot be reached")
        refused(d, "files", ("--allow-seccomp",), "cannot be loaded")
        strict(d)
        permitted(d)


main()
