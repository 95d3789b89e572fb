# SPDX-License-Identifier: Apache-2.0
"""Checks of policies that share the GPU's time: weights, a quick tenant beside a busy one, all as before afterwards."""
import os
import re
import subprocess
import sys
import time

import policy_checks
from harness import (CARRY, LIBS, Daemon, Failed, agent_env, ctl, json_rows, named, options, program, report, run,
                     wait_ready)

ACCURACY = 0.10  # of the ratio that weights ask for
AGREEMENT = 0.03  # of the GPU's time, between the trace and the kernels done
FASTER = 3.0  # 99th percentile of launch to end, stock against policy


def iterations(us, waves):
    text, _ = run([program("tenant"), "calibrate", str(us), str(waves)], "tenants", env=LIBS)
    return int(re.search(r"^iterations (\d+)$", text, re.M)[1])


class Tenant:
    """tenant under a name of its own."""

    running = []

    def __init__(self, name, *arguments, env=None):
        self.process = subprocess.Popen([named(name, "tenant"), *map(str, arguments)], stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, **(env or {})})
        self.pid = self.process.pid
        self.running.append(self.process)
        wait_ready([self.process])

    def times(self):
        text = self.process.communicate()[0]
        if "done" not in text:
            raise Failed(f"a tenant ended with {self.process.returncode}")
        return [int(x) for x in text.split("done", 1)[1].split()]


def alone(check):
    """The check, after which no tenant of it runs on, however it ends: it would disturb the next."""

    def run_alone():
        try:
            check()
        finally:
            while Tenant.running:
                process = Tenant.running.pop()
                process.kill()
                process.wait()

    return run_alone


def slices(tenant):
    """Time slices of the compute groups of a tenant, us, as the driver says."""
    groups = json_rows("groups", "--pid", str(tenant.pid))
    return sorted(g.get("time_slice_us", 0) for g in groups if g.get("engine") == 1)


def policy(name):
    p = policy_checks.policy(name)
    if not policy_checks.is_balanced(p):
        raise Failed(f"{name}: asked {p['asked']}, done {p['done']}, refused {p['refused']}, waiting {p['waiting']}")
    return p


def brief(p):
    refused = " ".join(f"{r['reason']}={r['count']}" for r in p["refusals"])
    average = p["run_ns"] / p["runs"] / 1000 if p["runs"] else 0
    return f"{p['state']}, {p['runs']} runs of {average:.1f} us, done {p['done']} of {p['asked']} {refused}".strip()


class Phase:
    """A span of time: who had the GPU by the trace, and the slices at its end."""

    def __init__(self, name, tenants, seconds):
        self.name = name
        self.begin = time.monotonic_ns()
        time.sleep(seconds)
        self.end = time.monotonic_ns()
        self.slices = [slices(t) for t in tenants]
        time.sleep(1.2)  # seconds are told of when they are over
        back = (time.monotonic_ns() - self.end) // 1000000
        rows = json_rows("share", "--since", f"{back + int(seconds * 1000)}ms", "--until", f"{back}ms")
        active = {r["pid"]: 0 for r in rows if "active_ns" in r and "pid" in r}
        for r in rows:
            if "active_ns" in r and "pid" in r:
                active[r["pid"]] += r["active_ns"]
        self.active = [active.get(t.pid, 0) for t in tenants]

    def look(self, ends):
        """(ratio by kernels, ratio by the trace, by how much of the GPU the two disagree)"""
        self.kernels = [sum(1 for e in each if self.begin <= e < self.end) for each in ends]
        done, had = sum(self.kernels), sum(self.active)
        if not all(self.kernels) or not all(self.active):
            return 0, 0, 1
        apart = max(abs(k / done - a / had) for k, a in zip(self.kernels, self.active))
        return self.kernels[0] / self.kernels[1], self.active[0] / self.active[1], apart


def say(phase, want, found):
    kernels, trace, apart = found
    return (f"{phase.name}: {phase.kernels} kernels {kernels:.2f}:1 (wanted {want}), trace {trace:.2f}:1, "
            f"apart {100 * apart:.1f} % of the GPU, slices {phase.slices} us")


def is_near(found, want):
    return all(abs(ratio / want - 1) <= ACCURACY for ratio in found[:2]) and found[2] <= AGREEMENT


def set_weights(first, second):
    ctl(["policy", "set", "sched_fair", f"weights[0]={first}"])
    ctl(["policy", "set", "sched_fair", f"weights[1]={second}"])


def check_sched_shares():
    """Two tenants that always have work: shares follow weights, and are even again once the policy is disabled."""
    seconds = 3 if options.quick else 5
    ratios = [1, 2, 8]
    with Daemon("sched_shares", device=False):
        work = iterations(250, 1)
        total = len(ratios) * (seconds + 3.5) + 2 * (seconds + 1.5) + 5
        tenants = [Tenant(name, "busy", work, 1, total) for name in ("tenant_a", "tenant_b")]
        phases = [(Phase("stock", tenants, seconds), 1)]
        ctl(["policy", "load", "sched_fair", "--set", "groups[0]=tenant_a", "--set", "groups[1]=tenant_b"])
        for ratio in ratios:
            set_weights(100 * ratio, 100)
            time.sleep(2)
            phases.append((Phase(f"weights {ratio}:1", tenants, seconds), ratio))
        p = policy("sched_fair")
        ctl(["policy", "disable", "sched_fair"])
        time.sleep(0.5)
        phases.append((Phase("disabled", tenants, seconds), 1))
        ends = [t.times() for t in tenants]
    found = [(phase, want, phase.look(ends)) for phase, want in phases]
    stock, back = phases[0][0].slices, phases[-1][0].slices
    ok = all(is_near(f, want) for _, want, f in found) and p["state"] == "active" and stock == back
    report("sched shares", ok, "; ".join(say(*f) for f in found) + f"; sched_fair {brief(p)}")


def check_sched_killed():
    """kill -9 of the daemon: its time slices stay until the next daemon sets them back."""
    seconds = 3
    with Daemon("sched_killed", device=False) as d:
        work = iterations(250, 1)
        tenants = [Tenant(name, "busy", work, 1, 4 * (seconds + 2) + 6) for name in ("tenant_a", "tenant_b")]
        stock = [slices(t) for t in tenants]
        ctl(["policy", "load", "sched_fair", "--set", "groups[0]=tenant_a", "--set", "weights[0]=800"])
        time.sleep(2)
        phases = [(Phase("sched_fair", tenants, seconds), 8)]
        d.kill()
        killed = time.monotonic_ns()
        time.sleep(seconds)
        started = time.monotonic_ns()
        d.start()
        time.sleep(1)
        phases.append((Phase("restarted", tenants, seconds), 1))
        ends = [t.times() for t in tenants]
        status = ctl(["policy", "list"])[0]
    with open(os.path.join(options.out, "daemon.log"), encoding="utf-8") as f:
        said = re.findall(r"slices left by a daemon that was killed: (\d+) set back, (\d+) gone[^,]*, (\d+) failed",
                          f.read().split("--- sched_killed", 1)[1])
    found = [(phase, want, phase.look(ends)) for phase, want in phases]
    dead = [sum(1 for e in each if killed <= e < started) for each in ends]
    left = dead[0] / max(dead[1], 1)
    groups = sum(len(s) for s in stock)
    set_back = len(said) == 1 and int(said[0][0]) >= groups and said[0][2] == "0"
    ok = all(is_near(f, want) for _, want, f in found) and left > 4 and set_back and "sched_fair" not in status
    report("sched killed", ok, f"stock slices {stock} us; " + "; ".join(say(*f) for f in found) +
           f"; without a daemon {dead} kernels {left:.2f}:1; said: set back, gone, failed {said}")


# ---- a quick tenant beside a busy one ----

def percentiles(pairs, begin, end):
    """(number, median, 99th, longest) of launch to end, us."""
    us = sorted((e - s) / 1000 for s, e in pairs if begin <= s < end)
    if len(us) < 100:
        raise Failed(f"only {len(us)} launches in a phase")
    return len(us), us[len(us) // 2], us[len(us) * 99 // 100], us[-1]


QUICK = [  # name, policy and what it is loaded with; None: nothing
    ("stock", None),
    ("sched_class", ["sched_class", "--set", "critical[0]=tenant_quick", "--set", "other_us=100"]),
    ("sched_class, 200 us", ["sched_class", "--set", "critical[0]=tenant_quick", "--set", "other_us=200"]),
    ("sched_fair", ["sched_fair", "--set", "groups[0]=tenant_quick", "--set", "weights[0]=400"]),
    ("stock again", None),
]


def quick_case(waves, seconds):
    """Of each of QUICK: percentiles, kernels of the busy one a second, slices, what the policy did."""
    quick_work, busy_work = iterations(100, 1), iterations(2000, waves)
    total = len(QUICK) * (seconds + 2) + 3
    spans, results = [], []
    busy = Tenant("tenant_busy", "busy", busy_work, waves, total)
    quick = Tenant("tenant_quick", "bursts", quick_work, 1, total - 1, 2, 5000)
    for name, load in QUICK:
        if load:
            ctl(["policy", "load", *load])
        time.sleep(1.5)
        begin = time.monotonic_ns()
        time.sleep(seconds)
        did = brief(policy(load[0])) if load else ""
        spans.append((begin, time.monotonic_ns(), [slices(quick), slices(busy)], did))
        if load:
            ctl(["policy", "unload", load[0]])
    flat, ends = quick.times(), busy.times()
    pairs = list(zip(flat[::2], flat[1::2]))
    for (name, _), (begin, end, us, did) in zip(QUICK, spans):
        rate = sum(1 for e in ends if begin <= e < end) * 1e9 / (end - begin)
        results.append((name, percentiles(pairs, begin, end), rate, us, did))
    return results


def check_sched_quick():
    """Bursts of 100 us kernels beside kernels of 2 ms: the 99th percentile at least three times shorter than stock."""
    seconds = 4 if options.quick else 6
    with Daemon("sched_quick", device=False):
        for waves, what in ((40, "40 waves"), (1, "one wave")):
            results = quick_case(waves, seconds)
            p99 = {name: times[2] for name, times, *_ in results}
            gain = p99["stock"] / p99["sched_class"]
            ok = gain >= FASTER and results[0][3] == results[-1][3] and 0.5 < p99["stock again"] / p99["stock"] < 2
            report("sched quick", ok, f"beside 2 ms of {what}: {gain:.1f} times shorter; " + "; ".join(
                f"{name}: p50 {t[1]:.0f} p99 {t[2]:.0f} max {t[3]:.0f} us of {t[0]}, {rate:.0f} busy kernels/s, "
                f"slices {us} us {did}".strip() for name, t, rate, us, did in results))


# ---- channel groups that come later ----

# A context, and one more for each line that it reads.
CONTEXTS = r"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
print("made", flush=True)
for line in sys.stdin:
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    print("made", flush=True)
"""


def wait_slices(process, count, us):
    """Its slices once there are more than count and all are us, or as they are after three seconds."""
    deadline = time.monotonic() + 3
    found = slices(process)
    while time.monotonic() < deadline and not (len(found) > count and set(found) == {us}):
        time.sleep(0.05)
        found = slices(process)
    return found


def check_sched_groups():
    """A slice set for a process holds for contexts it makes later, although CUDA sets its own for each; all set back."""
    us = 4000
    with Daemon("sched_groups", device=False):
        p = subprocess.Popen([sys.executable, "-c", CONTEXTS], text=True, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
        try:
            if p.stdout.readline() != "made\n":
                raise Failed("no context could be made")
            time.sleep(0.5)
            stock = slices(p)
            key = next(i for i, row in enumerate(json_rows("ps"), 1) if row["pid"] == p.pid)
            ctl(["policy", "load", os.path.join(CARRY, "data", "policy_scripted.bpf.o"), "--name", "scripted",
                 "--set", "on=1", "--set", "kind=6", "--set", f"value={us}", "--set", f"process={key}"])
            ctl(["policy", "set", "scripted", "on=9"])  # ten times a second
            seen = [wait_slices(p, 0, us)]
            ctl(["policy", "set", "scripted", "on=1"])  # no more: what comes now is the daemon's doing
            for _ in range(2):
                p.stdin.write("\n")
                p.stdin.flush()
                if p.stdout.readline() != "made\n":
                    raise Failed("no further context could be made")
                seen.append(wait_slices(p, len(seen[-1]), us))
            did = policy("scripted")
            ctl(["policy", "unload", "scripted"])
            time.sleep(0.5)
            after = slices(p)
        finally:
            p.kill()
            p.wait()
    ok = (all(set(s) == {us} for s in seen) and len(stock) <= len(seen[0]) < len(seen[1]) < len(seen[2]) and
          did["renewed"] > 0 and did["unrenewed"] == 0 and set(after) == set(stock) and len(after) == len(seen[2]))
    report("sched groups", ok, f"slices {stock} us stock, {seen} with {us} us for one, two and three contexts, {after} "
           f"after; set again {did['renewed']} times, {did['unrenewed']} failed; {brief(did)}")


# ---- launches held back ----

def check_sched_pace():
    """A tenant with 32 kernels in flight: two with pace_depth, which keep the GPU as busy; 32 again afterwards."""
    spans = []
    with Daemon("sched_pace"):
        tenant = Tenant("tenant_paced", "busy", iterations(250, 1), 1, 14, env=agent_env())

        def span(seconds):
            begin, deepest = time.monotonic_ns(), 0
            while time.monotonic_ns() < begin + seconds * 10**9:
                row = next((p for p in json_rows("ps") if p["pid"] == tenant.pid), {})
                deepest = max(deepest, row.get("depth", 0))
                time.sleep(0.05)
            spans.append((begin, time.monotonic_ns(), deepest, row))

        span(2)
        ctl(["policy", "load", "pace_depth", "--process", "tenant_paced"])
        time.sleep(1)
        span(2)
        p = policy("pace_depth")
        ctl(["policy", "unload", "pace_depth"])
        time.sleep(0.5)
        span(2)
        ends = tenant.times()
    rates = [sum(1 for e in ends if begin <= e < end) * 1e9 / (end - begin) for begin, end, *_ in spans]
    depths, row = [s[2] for s in spans], spans[1][3]
    ok = (depths[0] > 16 and depths[1] <= 4 and depths[2] > 16 and row.get("held", 0) > 1000 and
          row.get("held_late", 0) == 0 and rates[1] > 0.9 * rates[0] and p["state"] == "active")
    report("sched pace", ok, f"waiting at most {depths[0]} stock, {depths[1]} with pace_depth, {depths[2]} after it; "
           f"kernels a second {rates[0]:.0f}, {rates[1]:.0f}, {rates[2]:.0f}; held {row.get('held')} launches for "
           f"{row.get('held_ns', 0) / 1e9:.2f} s, late {row.get('held_late')}; {brief(p)}")


CHECKS = {
    "sched_pace": alone(check_sched_pace),
    "sched_shares": alone(check_sched_shares),
    "sched_killed": alone(check_sched_killed),
    "sched_quick": alone(check_sched_quick),
    "sched_groups": check_sched_groups,
}
