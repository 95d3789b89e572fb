# SPDX-License-Identifier: Apache-2.0
"""Checks of policies: the simulator on this kernel, memory brought ahead, time slices by class, all undone."""
import json
import os
import re
import shutil
import statistics
import subprocess
import time

from harness import LIBS, PREFIX, Daemon, Failed, ctl, options, program, report, results_of, run


def check_policy_simulate():
    """Every shipped object loads into this kernel and runs; the simulator's figures are the same anywhere."""
    simulate = [f"{PREFIX}/bin/gpuobsctl", "policy", "simulate"]
    names = ["evict_lru", "evict_lfu", "evict_2q", "evict_mru", "evict_quota", "evict_priority", "kv_cache",
             "pin_protect", "prefetch_args", "prefetch_stride", "prefetch_tree", "sched_class", "sched_deadline",
             "sched_fair", "pace_depth"]
    command = simulate + ["--pattern", "zipf", "--percent", "200", "--json"]
    for name in names:
        command += ["--policy", name]
    text, seconds = run(command, "policy_simulate", env=LIBS)
    rows = {r["policy"]: r for r in map(json.loads, text.strip().splitlines())}
    driver, best = rows["driver"]["fetches"], rows["driver, best victims"]["fetches"]
    ok = set(names) <= set(rows) and best <= rows["evict_lru"]["fetches"] < driver
    # What the same command gave where it was written.
    same = (driver, rows["evict_lru"]["fetches"], best) == (5496, 4313, 2145)
    report("policy simulate", ok and same,
           f"{len(rows)} rows in {seconds:.1f} s, fetches: driver {driver}, evict_lru {rows['evict_lru']['fetches']}, "
           f"best {best} (expected 5496, 4313, 2145)")


def policy(name):
    return json.loads(ctl(["policy", "show", name, "--json"])[0])["policy"]


def walk(mib, passes, log):
    text, _ = run([program("managed"), str(mib), str(passes)], log, env=LIBS, check=False)
    if "SKIP" in text:
        return None, None
    times = [float(x) for x in re.findall(r"^pass ([0-9.]+)$", text, re.M)]
    if len(times) != passes:
        raise Failed("managed did not finish")
    return statistics.median(times[1:]), results_of(text)


def describe(p):
    refused = " ".join(f"{r['reason']}={r['count']}" for r in p["refusals"])
    average = p["run_ns"] / p["runs"] / 1000 if p["runs"] else 0
    return (f"{p['events']} events, {p['runs']} runs of {average:.1f} us, asked {p['asked']}, done {p['done']}, "
            f"moved {p['bytes'] >> 20} MiB {refused}").strip()


def check_policy_memory():
    """A stream over managed memory: faults alone, then read ahead by a policy; the sums are the same."""
    mib, passes = (256, 4) if options.quick else (1024, 6)
    with Daemon("policy_memory", device=False, settings=["managed_memory=yes"]):
        plain, want = walk(mib, passes, "policy_memory")
        if plain is None:
            report("policy memory", None, "too little memory is free")
            return
        parts, ok = [f"{plain:.1f} ms a pass of {mib} MiB without"], True
        for name in ("prefetch_stride", "prefetch_tree"):
            ctl(["policy", "load", name, "--process", "managed"])
            median, got = walk(mib, passes, "policy_memory")
            p = policy(name)
            ctl(["policy", "unload", name])
            account = p["asked"] == p["done"] + p["refused"] + p["waiting"]
            ok = ok and got == want and p["state"] == "active" and p["done"] > 0 and account
            parts.append(f"{median:.1f} ms with {name} ({describe(p)})")
    report("policy memory", ok, "; ".join(parts))


def start_spin(name, seconds):
    """The spinning program under a name of its own: policies tell processes apart by it."""
    path = os.path.join(options.out, name)
    shutil.copy(program("spin"), path)
    p = subprocess.Popen([path, str(seconds)], stdout=subprocess.PIPE, text=True)
    for line in p.stdout:
        if line == "ready\n":
            return p
    raise Failed("spin ended before it began")


def check_policy_slices():
    """Two spinning processes: equal, then one with long slices by a policy, then equal again once it is unloaded."""
    with Daemon("policy_slices", device=False):
        spins = [start_spin("spin_quick", 13), start_spin("spin_batch", 13)]
        spans = []

        def span(seconds):
            begin = time.monotonic_ns()
            time.sleep(seconds)
            spans.append((begin, time.monotonic_ns()))

        span(3)
        ctl(["policy", "load", "sched_class", "--set", "critical[0]=spin_quick", "--set", "other_us=200"])
        time.sleep(1)
        span(3)
        p = policy("sched_class")
        ctl(["policy", "unload", "sched_class"])
        time.sleep(1)
        span(3)
        ends = [[int(x) for x in q.communicate()[0].split("done", 1)[1].split()] for q in spins]
    counts = [[sum(1 for e in each if begin <= e < end) for each in ends] for begin, end in spans]
    ratios = [a / max(b, 1) for a, b in counts]
    account = p["asked"] == p["done"] + p["refused"] + p["waiting"]
    ok = (p["state"] == "active" and p["settings"] == 2 and account and 0.8 < ratios[0] < 1.25 and ratios[1] > 3 and
          0.8 < ratios[2] < 1.25)
    report("policy slices", ok,
           f"kernels of the two: {counts[0]} before, {counts[1]} with sched_class, {counts[2]} after it was unloaded; "
           f"{describe(p)}, {p['settings']} settings in force")


CHECKS = {
    "policy_simulate": check_policy_simulate,
    "policy_memory": check_policy_memory,
    "policy_slices": check_policy_slices,
}
