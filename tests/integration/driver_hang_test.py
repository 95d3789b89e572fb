#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A driver that hangs as a whole: the daemon goes on, says so, and ends in time.

usage: driver_hang_test.py BUILD SIMNVML HANG_DRIVER

The management library and the resource manager are simulated, and calls of theirs do not return while there is a
file "hang".
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from daemon import Application, Daemon, check, check_soon, wait_for

TICK = 9
FREE_BYTES = 7 << 30
UNKNOWN = 2**64 - 1
MANAGED = """
import itertools
context, a = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
for line in itertools.chain(["ready\\n"], sys.stdin):
    call("cuMemAllocManaged", ctypes.byref(a), ctypes.c_size_t(1 << 20), 1)
    print(line, end="", flush=True)
"""


class HangingDaemon(Daemon):
    """A daemon whose driver hangs when it is told to; uuid: of its GPU."""

    def __init__(self, build, nvml, driver, uuid="a-GPU-of-no-app!", settings=()):
        super().__init__(build, settings=settings)
        self.hang_file = os.path.join(self.directory, "hang")
        self.surroundings = {"LD_LIBRARY_PATH": os.path.dirname(os.path.abspath(nvml)), "SIM_NVML_HANG": self.hang_file,
                             "LD_PRELOAD": os.path.abspath(driver), "SIM_RM": self.directory, "SIM_RM_UUID": uuid}

    def start(self):
        os.environ.update(self.surroundings)
        try:
            super().start()
        finally:
            for name in self.surroundings:
                del os.environ[name]

    def hang(self):
        with open(self.hang_file, "w", encoding="ascii"):
            pass

    def answer(self):
        os.unlink(self.hang_file)

    def asked(self, *arguments):
        """What it prints and what it complains of."""
        p = subprocess.run([self.ctl_path, "--socket", self.api, *arguments], text=True, check=True, timeout=60,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return p.stdout, p.stderr

    def problems(self):
        return {p["name"]: p["doc"] for p in json.loads(self.ctl("status", "--json"))["problems"]}

    def doctor(self):
        return {row["name"]: row for row in self.json_rows("doctor")}

    def stops_within(self, seconds):
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(30)
        check(time.monotonic() - began < seconds, f"it took {time.monotonic() - began:.1f} s to stop")
        check(self.process.returncode == 0, f"it ended with {self.process.returncode}")


def known_until(d):
    """The time until which it is known who had the GPU; 0: nobody asked yet."""
    return max((row["until_ns"] for row in d.json_rows("share") if "until_ns" in row), default=0)


def switches_go_on(d):
    before = known_until(d)
    wait_for(30, lambda: known_until(d) > before, "context switches are read")
    wait_for(30, lambda: any(row.get("pid") == os.getpid() for row in d.json_rows("share")), "it is told whose they are")


def says_nothing_while_it_answers(d):
    wait_for(30, lambda: "Simulated New" in d.ctl("gpus"), "the library is open")
    gpus = json.loads(d.ctl("status", "--json"))["gpus"]
    check([(g["gpu"], g["clock"]) for g in gpus] == [(0, "ptimer")], f"{gpus}")
    switches_go_on(d)
    out, err = d.asked("gpus")
    check("97 %" in out and err == "", f"{out} {err}")
    check("driver_silent" not in d.problems(), f"{d.problems()}")
    check(d.doctor()["driver_answers"]["state"] == "ok", f"{d.doctor()['driver_answers']}")
    print("ok it answers")


def goes_on_while_it_hangs(d):
    d.hang()
    askers = [subprocess.Popen([d.ctl_path, "--socket", d.api, "gpus"], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE) for _ in range(8)]
    for asker in askers:
        out, err = asker.communicate(timeout=30)
        check("the driver has not answered for" in err and "Simulated New" in out and "%" not in out, f"{out} {err}")
    check_soon(2, lambda: d.ctl("launches", "--limit", "10"), "a query waits")
    check_soon(1, lambda: check("the driver has not answered for" in d.asked("gpus")[1], "it is told"), "who asks waits")
    known = known_until(d)
    said = d.run("-n", "100")
    ledger = d.settled(said["pid"])
    check(ledger["stored"] >= 100 and ledger["lost"] == 0, f"{ledger}")
    wait_for(20, lambda: "the driver has not answered for" in d.problems().get("driver_silent", ""), d.problems)
    row = d.doctor()["driver_answers"]
    check(row["state"] == "limited" and "the driver has not answered for" in row["finding"], f"{row}")
    check("rebooted" in row["advice"], f"{row}")
    check(d.doctor()["management_library"]["state"] == "limited", f"{d.doctor()}")
    wait_for(20, lambda: "the driver has not answered for" in d.said(), "the log says so")
    check(known_until(d) == known, "context switches are read of a driver that hangs")
    check_soon(1, lambda: d.ctl("status"), "status waits")
    print("ok it goes on while the driver hangs")


def managed_memory_comes_late(d):
    """Processes that allocate some while the driver hangs, and one that is gone before it answers."""
    def why(p):
        rows = d.json_rows("uvm", "--pid", str(p.pid))
        return rows[0].get("reason", "") if rows else ""

    d.hang()
    apps = [Application(d, MANAGED, agent=False) for _ in range(3)]
    for p in apps:
        wait_for(20, lambda p=p: why(p) == "the driver has not answered yet", lambda p=p: f"the reason: {why(p)}")
        p.do("more")
    check_soon(1, lambda: d.ctl("uvm"), "the list waits")
    row = d.doctor()["managed_memory"]
    check(row["state"] == "limited" and "has not answered yet" in row["finding"], f"{row}")
    apps[0].end()
    d.settled(d.run("-n", "10")["pid"])
    d.answer()
    for p in apps[1:]:
        wait_for(20, lambda p=p: "file of the UVM driver" in why(p), lambda p=p: f"the reason: {why(p)}")
    d.hang()
    for p in apps[1:]:
        p.do("more")
        wait_for(20, lambda p=p: why(p) == "the driver has not answered yet", "asked again")
    d.stops_within(20)
    for p in apps[1:]:
        p.end()
    print("ok managed memory comes late")


def a_process_that_hangs_while_it_maps(d):
    """Its list of mappings is locked: looking for libraries goes on in other processes."""
    with subprocess.Popen(["sleep", "600"]) as hanging:
        with open(os.path.join(d.directory, "mapper"), "w", encoding="ascii") as f:
            f.write(str(hanging.pid))
        d.hang()
        for _ in range(2):
            d.process.send_signal(signal.SIGHUP)
            wait_for(30, lambda: "process_mappings" in d.doctor(), "doctor tells of it")
        # Others' lists may take longer than a moment, too.
        row = wait_for(20, lambda: (r := d.doctor()["process_mappings"])["finding"].startswith("what 1 process has mapped")
                       and r, lambda: f"{d.doctor()}")
        check(row["state"] == "limited", f"{row}")
        d.settled(d.run("-n", "10")["pid"])
        d.answer()
        wait_for(20, lambda: "process_mappings" not in d.doctor(), "it has come back")
        d.hang()
        d.process.send_signal(signal.SIGHUP)
        wait_for(30, lambda: "process_mappings" in d.doctor(), "it hangs again")
        d.stops_within(20)
        hanging.kill()
    print("ok a process that hangs while it maps")


def probed(d, path):
    return f"probing {path}" in d.said()


def a_process_that_hangs_with_its_library(d):
    """Its mappings are told of, but not opened, as newer kernels do it; other copies come meanwhile, and one goes."""
    def copy(name):
        directory = os.path.join(d.directory, name)
        os.mkdir(directory)
        return shutil.copy(os.path.join(d.sim_directory, "libcuda.so.1"), directory)

    def app_with(path):
        return Application(d, MANAGED, agent=False, LD_LIBRARY_PATH=os.path.dirname(path))

    def scan():
        d.process.send_signal(signal.SIGHUP)

    def hangs():
        return d.doctor().get("process_mappings")

    d.answer()
    d.start()
    own, late, listed = copy("own"), copy("late"), copy("listed")
    hanging = app_with(own)
    wait_for(30, lambda: probed(d, own), "the process's copy is probed")
    for name, text in (("mapper", str(hanging.pid)), ("newer", "")):
        with open(os.path.join(d.directory, name), "w", encoding="ascii") as f:
            f.write(text)
    os.unlink(own)
    d.hang()
    for _ in range(2):
        scan()
        check(wait_for(30, hangs, "doctor tells of it")["state"] == "limited", f"{hangs()}")
    check_soon(1, lambda: d.ctl("status"), "status waits")
    d.settled(d.run("-n", "10")["pid"])
    app = app_with(late)
    wait_for(30, lambda: f"{late} gets no probes yet" in d.said(), "a copy that comes is put off")
    scan()
    check_soon(1, lambda: d.ctl("status"), "status waits")
    check(not probed(d, late), "it is probed while a process hangs")
    d.stops_within(20)
    with open(os.path.join(d.directory, "daemon.log"), "w", encoding="ascii"):
        pass

    # One that starts meanwhile goes on, too, and has its probes when the process goes on.
    d.settings.append(f"library={listed}")
    d.start()
    check(wait_for(30, hangs, "doctor tells of it")["state"] == "limited", f"{hangs()}")
    for path in (late, listed):
        check(f"{path} gets no probes yet" in d.said() and not probed(d, path), d.said())
    d.answer()
    wait_for(20, lambda: not hangs(), "it has come back")
    wait_for(30, lambda: probed(d, late) and probed(d, listed) and probed(d, own), "all are probed")
    d.stops_within(20)
    for a in (app, hanging):
        a.end()
    print("ok a process that hangs with its library")


def goes_on_when_it_answers_again(d):
    d.answer()
    wait_for(20, lambda: "driver_silent" not in d.problems(), "the problem goes")
    wait_for(20, lambda: (said := d.asked("gpus")) and "97 %" in said[0] and said[1] == "", lambda: f"{d.asked('gpus')}")
    row = d.doctor()["driver_answers"]
    check(row["state"] == "ok" and "calls that took longer than 2 s:" in row["finding"], f"{row}")
    wait_for(20, lambda: "the driver answers again" in d.said(), "the log says so")
    switches_go_on(d)
    check(d.said().count("the driver has not answered for") == 1, "it is said once")
    print("ok it goes on when the driver answers again")


def ends_while_it_hangs(d):
    d.hang()
    d.asked("gpus")
    d.stops_within(15)
    print("ok it ends while the driver hangs")


def starts_while_it_hangs(d):
    d.start()
    wait_for(30, lambda: "driver_silent" in d.problems(), "the problem is told")
    wait_for(30, lambda: "the driver has not answered for" in d.asked("gpus")[1], "that of the library, too")
    check(json.loads(d.ctl("status", "--json"))["gpus"] == [], "a GPU that the driver has not told of")
    row = d.doctor()["gpu_clock"]
    check(row["state"] == "limited" and "the driver is still being asked" in row["finding"], f"{row}")
    d.settled(d.run("-n", "10")["pid"])
    d.answer()
    wait_for(30, lambda: "97 %" in d.ctl("gpus"), "the library is open")
    wait_for(30, lambda: json.loads(d.ctl("status", "--json"))["gpus"], "the GPU is known")
    switches_go_on(d)
    check(d.doctor()["context_switches"]["state"] == "ok", f"{d.doctor()['context_switches']}")
    d.hang()
    d.stops_within(15)
    print("ok it starts while the driver hangs")


def last_free(d):
    variables = json.loads(d.ctl("policy", "show", "p", "--json"))["variables"]
    return next(int(v["value"]) for v in variables if v["name"] == "last_free")


def free_memory_comes_and_goes(d):
    """Of a GPU that a process uses: its UUID is that of the application's."""
    scripted = os.path.join(d.build, "tests/bpf/policy_scripted.bpf.o")
    app = d.popen("-n", "10", "--pause-ms", "600000")
    d.ctl("policy", "load", scripted, "--name", "p", "--set", f"on={TICK}")
    wait_for(20, lambda: last_free(d) == FREE_BYTES, lambda: f"free memory is told, not {last_free(d)}")
    d.hang()
    wait_for(20, lambda: last_free(d) == UNKNOWN, lambda: f"it is not known any more: {last_free(d)}")
    wait_for(30, lambda: "driver_silent" in d.problems(), "the problem is told")
    d.answer()
    wait_for(30, lambda: last_free(d) == FREE_BYTES, "it is known again")
    app.kill()
    app.communicate()
    d.hang()
    time.sleep(1)
    d.stops_within(20)
    print("ok free memory comes and goes")


def main():
    with HangingDaemon(*sys.argv[1:4], uuid="gpuobs-simulate0", settings=["agent_clock=yes", "nvml=no"]) as d:
        free_memory_comes_and_goes(d)
    with HangingDaemon(*sys.argv[1:4]) as d:
        managed_memory_comes_late(d)
    with HangingDaemon(*sys.argv[1:4], settings=["context_switches=no", "nvml=no"]) as d:
        a_process_that_hangs_while_it_maps(d)
        a_process_that_hangs_with_its_library(d)
    with HangingDaemon(*sys.argv[1:4]) as d:
        says_nothing_while_it_answers(d)
        goes_on_while_it_hangs(d)
        goes_on_when_it_answers_again(d)
        ends_while_it_hangs(d)
        starts_while_it_hangs(d)


if __name__ == "__main__":
    main()
