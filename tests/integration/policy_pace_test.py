#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launches held back and streams made with another priority, through the whole daemon.

    policy_pace_test.py BUILD_DIRECTORY [SCENARIO...]

On the simulated GPU. Limits hold, are counted, and are gone when the policy is
unloaded while launches wait, when the daemon is killed, when the process ends; they
are told to the next agent of a process; impossible ones are refused.
"""
import json
import os
import sqlite3
import subprocess
import sys
import time

from daemon import Application, Daemon, check, skip, wait_for

BUILD = sys.argv[1]
SIM_ATTACH = os.path.join(BUILD, "tests/integration/sim_apps/sim_attach")
AGENT = os.path.join(BUILD, "probes/agent/libgpuobs-agent.so")
SCRIPTED = os.path.join(BUILD, "tests/bpf/policy_scripted.bpf.o")
PACE, RATE, PRIORITY = 8, 9, 10
TICK, NEVER = 9, 1  # events the policy acts on: ten times a second; the end of a process
KERNEL = ["-k", "spin", "--spin-ns", "1000000"]

# Makes a stream for each line that it reads and prints its priority.
STREAMS = r'''
PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry nothing()
{
ret;
}
"""
context, module, stream, priority = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
print("ready", flush=True)
for line in sys.stdin:
    if line == "plain\n":
        call("cuStreamCreate", ctypes.byref(stream), 1)
    else:
        call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, int(line))
    call("cuStreamGetPriority", stream, ctypes.byref(priority))
    call("cuStreamDestroy_v2", stream)
    print(priority.value, flush=True)
'''


def process(d, pid):
    return next((p for p in d.json_rows("ps") if p["pid"] == pid), {})


def show(d):
    p = json.loads(d.ctl("policy", "show", "p", "--json"))["policy"]
    check(p["asked"] == p["done"] + p["refused"] + p["waiting"], f"account {p}")
    return p


def refusals(d):
    return {r["reason"]: r["count"] for r in show(d)["refusals"]}


def load(d):
    d.ctl("policy", "load", SCRIPTED, "--name", "p", "--set", f"on={NEVER}")


def ask(d, key, kind, value):
    """Once or a few times."""
    done = show(d)["done"]
    for name, number in (("process", key), ("kind", kind), ("value", value), ("on", TICK)):
        d.ctl("policy", "set", "p", f"{name}={number}")
    wait_for(20, lambda: show(d)["done"] > done, f"it is done: {show(d)}")
    d.ctl("policy", "set", "p", f"on={NEVER}")


def start(d, *how):
    """Launches all the time, until it is told to end, or as given."""
    app = d.popen("-s", "1", *KERNEL, *(how or ["--until-input"]))
    wait_for(20, lambda: process(d, app.pid).get("depth", 0) > 20, "launches pile up")
    if "recorded" in d.said() or "left to the kernel" in d.said():
        app.kill()
        skip("somebody else probes launches here")
    return app


def finish(app, seconds=200):
    out, err = app.communicate(timeout=seconds)
    check(app.returncode == 0, f"the application: {app.returncode} {err}")
    return out


def check_depth(d, pid):
    """Often enough: no more wait than may, unless one had waited for so long that it was let go."""
    looks, quiet = [], 0

    def enough():
        nonlocal quiet
        p = process(d, pid)
        check(p["limit_waiting"] == 2 and p["limits_heeded"], f"{p}")
        looks.append((p["depth"], p.get("held_late", 0)))
        if len(looks) >= 3 and looks[-1][1] == looks[-3][1]:
            check(looks[-2][0] <= 3, f"{looks}")
            quiet += 1
        return quiet >= 20
    wait_for(60, enough, lambda: f"one waits for too long all the time: {looks}")


def depth():
    """No more than the limit wait; unloading while launches wait lets them all go."""
    with Daemon(BUILD, settings=["log_level=info"]) as d:
        load(d)
        app = start(d)
        ask(d, d.process_key(app.pid), PACE, 2)
        wait_for(20, lambda: process(d, app.pid).get("limits_heeded") and process(d, app.pid)["depth"] <= 3,
                 "the queue runs dry")
        check_depth(d, app.pid)
        p = wait_for(20, lambda: (p := process(d, app.pid))["held"] > 100 and p["held_ns"] > 10**8 and p,
                     "launches are held")
        # A machine that stands still for as long as a launch may wait lets a few go.
        check(p.get("held_late", 0) <= p["held"] / 10, f"{p}")
        check(show(d)["settings"] == 1, "one setting in force")
        d.ctl("policy", "unload", "p")
        wait_for(30, lambda: process(d, app.pid)["depth"] > 20, "launches pile up again")
        check(not {"limit_waiting", "limits_heeded"} & process(d, app.pid).keys(), "no limit is left")
        held = process(d, app.pid)["held"]
        finish(app)
        check(process(d, app.pid)["held"] <= held + 1, "nothing is held any more")
        d.settled(app.pid)


def launch_times(d, pid, since_ns, count):
    """When the last so many were launched, by the application's own clock; none while there are fewer."""
    with sqlite3.connect(f"file:{d.database}?mode=ro", uri=True) as db:
        times = db.execute("SELECT cpu_enter_ns FROM launches WHERE pid = ? AND cpu_enter_ns > ?"
                           " ORDER BY cpu_enter_ns DESC LIMIT ?", (pid, since_ns, count)).fetchall()
    return [t for (t,) in reversed(times)] if len(times) == count else []


def check_limited(d, pid):
    """To a hundred a second. It may be fewer for a while, when the process does not get a CPU."""
    since_ns, count = time.monotonic_ns(), 200

    def is_as_many():
        times = launch_times(d, pid, since_ns, count)
        if not times:
            return False
        # One may come late and the next in its time: the first that count is not to be such a one.
        n = min((count - 1 - i) * 1e9 / (times[-1] - times[i]) for i in range(10))
        check(n < 115, f"{n} launches a second")
        return n > 80
    wait_for(60, is_as_many, "it launches as often as it may")


def check_free(d, pid):
    """More than twice as often as with the limit, for as long as it takes to be sure."""
    since_ns, count = time.monotonic_ns(), 100

    def is_free():
        times = launch_times(d, pid, since_ns, count)
        return times and times[-1] - times[0] < 400_000_000
    wait_for(60, is_free, "it launches as often as it likes")


def wait_until_heeded(d, pid):
    wait_for(30, lambda: process(d, pid).get("limits_heeded"), "the agent goes by it")


def rate():
    """So many launches a second."""
    with Daemon(BUILD) as d:
        load(d)
        app = start(d)
        key = d.process_key(app.pid)
        ask(d, key, RATE, 100)
        wait_until_heeded(d, app.pid)
        check_limited(d, app.pid)
        ask(d, key, RATE, 0)
        check(show(d)["settings"] == 0 and show(d)["undone"] == 1, f"taken back: {show(d)}")
        wait_for(30, lambda: process(d, app.pid)["depth"] > 20, "launches pile up again")
        app.kill()
        app.communicate()


def killed():
    """The daemon is killed while launches wait: the process goes on as if it had never been there."""
    with Daemon(BUILD) as d:
        load(d)
        app = start(d, "-n", "6000")
        ask(d, d.process_key(app.pid), RATE, 10)
        wait_until_heeded(d, app.pid)
        left = 6000 - d.ledger(app.pid)["produced"]
        d.kill()
        began = time.monotonic()
        finish(app)
        # Seconds of kernels; minutes at that rate.
        check(time.monotonic() - began < left / 10 / 2, f"{left} took {time.monotonic() - began:.1f} s")
        d.start()


def bad():
    """Impossible limits, processes that cannot be limited, that end before it is done."""
    with Daemon(BUILD) as d:
        load(d)
        app = start(d)
        key = d.process_key(app.pid)
        for kind, value in ((PACE, 4097), (PACE, 1 << 63), (RATE, 9), (RATE, 1 << 32), (PRIORITY, 65), (11, 1)):
            before = refusals(d).get("nonsense", 0)
            for name, number in (("process", key), ("kind", kind), ("value", value), ("on", TICK)):
                d.ctl("policy", "set", "p", f"{name}={number}")
            wait_for(20, lambda: refusals(d).get("nonsense", 0) > before, f"{kind} {value} is nonsense")
            d.ctl("policy", "set", "p", f"on={NEVER}")
        check("limit_waiting" not in process(d, app.pid), "nothing was set")

        plain = d.popen("--until-input", *KERNEL, agent=False)
        wait_for(20, lambda: process(d, plain.pid), "the other process")
        d.ctl("policy", "set", "p", "value=2")
        d.ctl("policy", "set", "p", f"kind={PACE}")
        d.ctl("policy", "set", "p", f"process={d.process_key(plain.pid)}")
        d.ctl("policy", "set", "p", f"on={TICK}")
        wait_for(20, lambda: refusals(d).get("unsupported"), "without an agent nothing can be held back")
        plain.kill()
        plain.communicate()
        wait_for(20, lambda: refusals(d).get("gone"), "it has ended")

        # It goes on being asked for while the process ends.
        d.ctl("policy", "set", "p", f"process={key}")
        wait_for(20, lambda: process(d, app.pid).get("held"), "launches are held")
        app.kill()
        app.communicate()
        before = refusals(d)["gone"]
        wait_for(20, lambda: refusals(d)["gone"] > before, "it is gone, too")
        check(show(d)["state"] == "active" and show(d)["settings"] == 0, f"{show(d)}")
        check(process(d, app.pid)["held"] > 0, "what was held is remembered")


def streams():
    """Streams made from now on have the priority a policy gives them, and no longer than it is there."""
    with Daemon(BUILD) as d:
        load(d)
        app = Application(d, STREAMS)
        check(app.ready == "ready", app.ready)

        def made(how):
            return int(app.do(how))

        check((made("plain"), made(-1)) == (0, -1), "as it asks")
        key = d.process_key(app.pid)
        ask(d, key, PRIORITY, 1)
        greatest = made("plain")
        check(greatest < -1 and made(-1) == greatest and made(0) == greatest, f"the greatest, {greatest}")
        ask(d, key, PRIORITY, 2)
        check(made(0) == greatest + 1, "the next")
        ask(d, key, PRIORITY, 64)
        check(made(-1) == 0, "the least")
        wait_for(20, lambda: process(d, app.pid).get("streams_changed") == 5, f"counted: {process(d, app.pid)}")
        check(process(d, app.pid)["limit_priority"] == 64, f"{process(d, app.pid)}")
        d.ctl("policy", "disable", "p")
        wait_for(20, lambda: (made("plain"), made(-1)) == (0, -1), "as it asks again")
        d.ctl("policy", "enable", "p")
        ask(d, key, PRIORITY, 1)
        check(made(0) == greatest, "enabled again")
        d.kill()
        wait_for(30, lambda: (made("plain"), made(-1)) == (0, -1), "without a daemon as it asks")
        app.end()
        d.start()


def shipped():
    """pace_depth and stream_class on processes that come after them."""
    with Daemon(BUILD) as d:
        for name in ("pace_depth", "stream_class"):
            d.ctl("policy", "load", os.path.join(BUILD, "policies", name + ".bpf.o"))
        app = d.popen("--until-input", "-s", "1", *KERNEL)
        wait_for(20, lambda: process(d, app.pid).get("held", 0) > 50, "launches are held")
        wait_for(20, lambda: process(d, app.pid).get("limit_priority") == 64, "streams are of least priority")
        check(process(d, app.pid)["limit_waiting"] == 2, f"{process(d, app.pid)}")
        finish(app)
        rows = {r["name"]: r for r in d.json_rows("policy", "list")}
        check(all(r["state"] == "active" and r["done"] > 0 for r in rows.values()), f"{rows}")


def again():
    """An agent that comes after another is told what holds; what was taken back meanwhile is gone."""
    with Daemon(BUILD) as d:
        load(d)
        app = subprocess.Popen([SIM_ATTACH, "1"], env=d.environment(False), text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
        check(app.stdout.readline() == f"pid {app.pid}\n", "sim_attach starts")

        def agent(what):
            subprocess.run([d.ctl_path, "--socket", d.api, what, str(app.pid)], check=True, timeout=60,
                           env=dict(os.environ, GPUOBS_AGENT_LIBRARY=AGENT))

        agent("attach")
        check_free(d, app.pid)
        ask(d, d.process_key(app.pid), RATE, 100)
        wait_until_heeded(d, app.pid)
        check_limited(d, app.pid)
        agent("detach")
        held = wait_for(20, lambda: process(d, app.pid).get("held"), "what was held is remembered")
        check_free(d, app.pid)
        agent("attach")
        wait_until_heeded(d, app.pid)
        check_limited(d, app.pid)
        check(process(d, app.pid)["held"] > held > 100, f"counted on from {held}: {process(d, app.pid)}")
        check(show(d)["settings"] == 1, f"{show(d)}")
        agent("detach")
        d.ctl("policy", "unload", "p")
        wait_for(20, lambda: "limit_rate" not in process(d, app.pid), "taken back without an agent")
        agent("attach")
        check_free(d, app.pid)
        app.communicate("end\n", timeout=60)
        check(app.returncode == 0, f"sim_attach ended with {app.returncode}")


SCENARIOS = [depth, rate, killed, bad, streams, shipped, again]

for scenario in SCENARIOS:
    if len(sys.argv) < 3 or scenario.__name__ in sys.argv[2:]:
        scenario()
        print("ok", scenario.__name__, flush=True)
