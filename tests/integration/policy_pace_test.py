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


def start(d, launches):
    app = d.popen("-n", str(launches), "-s", "1", *KERNEL)
    wait_for(20, lambda: process(d, app.pid).get("depth", 0) > 20, "launches pile up")
    if "recorded" in d.said() or "left to the kernel" in d.said():
        app.kill()
        skip("somebody else probes launches here")
    return app


def finish(app, seconds=60):
    out, err = app.communicate(timeout=seconds)
    check(app.returncode == 0, f"the application: {app.returncode} {err}")
    return out


def depth():
    """No more than the limit wait; unloading while launches wait lets them all go."""
    with Daemon(BUILD, settings=["log_level=info"]) as d:
        load(d)
        app = start(d, 2500)
        ask(d, d.process_key(app.pid), PACE, 2)
        wait_for(20, lambda: process(d, app.pid).get("limits_heeded") and process(d, app.pid)["depth"] <= 3,
                 "the queue runs dry")
        for _ in range(20):
            p = process(d, app.pid)
            check(p["depth"] <= 3 and p["limit_waiting"] == 2 and p["limits_heeded"], f"{p}")
            time.sleep(0.05)
        wait_for(20, lambda: process(d, app.pid)["held"] > 100, "launches are held")
        p = process(d, app.pid)
        # A machine that stands still for as long as a launch may wait lets a few go.
        check(p["held_ns"] > 10**8 and p.get("held_late", 0) <= p["held"] / 20, f"{p}")
        check(show(d)["settings"] == 1, "one setting in force")
        d.ctl("policy", "unload", "p")
        wait_for(30, lambda: process(d, app.pid)["depth"] > 20, "launches pile up again")
        check(not {"limit_waiting", "limits_heeded"} & process(d, app.pid).keys(), "no limit is left")
        held = process(d, app.pid)["held"]
        finish(app)
        check(process(d, app.pid)["held"] <= held + 1, "nothing is held any more")
        d.settled(app.pid)


def launches_a_second(d, pid):
    before = d.ledger(pid)["produced"], time.monotonic()
    time.sleep(2)
    return (d.ledger(pid)["produced"] - before[0]) / (time.monotonic() - before[1])


def check_limited(d, pid):
    """To a hundred a second. It may be fewer for a while, when the process does not get a CPU."""
    def is_as_many():
        n = launches_a_second(d, pid)
        check(n < 115, f"{n} launches a second")
        return n > 80
    wait_for(30, is_as_many, "it launches as often as it may")


def check_free(d, pid):
    wait_for(30, lambda: launches_a_second(d, pid) > 300, "it launches as often as it likes")


def rate():
    """So many launches a second."""
    with Daemon(BUILD) as d:
        load(d)
        app = start(d, 100000)
        key = d.process_key(app.pid)
        ask(d, key, RATE, 100)
        time.sleep(1)
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
        app = start(d, 3000)
        ask(d, d.process_key(app.pid), RATE, 10)
        time.sleep(0.5)
        d.kill()
        began = time.monotonic()
        finish(app)
        # Three seconds of kernels; five minutes at that rate.
        check(time.monotonic() - began < 30, f"it took {time.monotonic() - began:.1f} s")
        d.start()


def bad():
    """Impossible limits, processes that cannot be limited, that end before it is done."""
    with Daemon(BUILD) as d:
        load(d)
        app = start(d, 100000)
        key = d.process_key(app.pid)
        for kind, value in ((PACE, 4097), (PACE, 1 << 63), (RATE, 9), (RATE, 1 << 32), (PRIORITY, 65), (11, 1)):
            before = refusals(d).get("nonsense", 0)
            for name, number in (("process", key), ("kind", kind), ("value", value), ("on", TICK)):
                d.ctl("policy", "set", "p", f"{name}={number}")
            wait_for(20, lambda: refusals(d).get("nonsense", 0) > before, f"{kind} {value} is nonsense")
            d.ctl("policy", "set", "p", f"on={NEVER}")
        check("limit_waiting" not in process(d, app.pid), "nothing was set")

        plain = d.popen("-n", "100000", *KERNEL, agent=False)
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
        check((made("plain"), made(-1)) == (0, -1), "as it asks again")
        d.ctl("policy", "enable", "p")
        ask(d, key, PRIORITY, 1)
        check(made(0) == greatest, "enabled again")
        d.kill()
        time.sleep(1.5)
        check((made("plain"), made(-1)) == (0, -1), "without a daemon as it asks")
        app.end()
        d.start()


def shipped():
    """pace_depth and stream_class on processes that come after them."""
    with Daemon(BUILD) as d:
        for name in ("pace_depth", "stream_class"):
            d.ctl("policy", "load", os.path.join(BUILD, "policies", name + ".bpf.o"))
        app = d.popen("-n", "2000", "-s", "1", *KERNEL)
        wait_for(20, lambda: process(d, app.pid).get("held", 0) > 50, "launches are held")
        p = process(d, app.pid)
        check(p["limit_waiting"] == 2 and p["limit_priority"] == 64, f"{p}")
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
            time.sleep(0.5)

        def heeded():
            return process(d, app.pid).get("limits_heeded")

        agent("attach")
        check_free(d, app.pid)
        ask(d, d.process_key(app.pid), RATE, 100)
        wait_for(30, heeded, "the agent goes by it")
        check_limited(d, app.pid)
        agent("detach")
        held = process(d, app.pid)["held"]
        check_free(d, app.pid)
        agent("attach")
        wait_for(30, heeded, "the next agent goes by it")
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
