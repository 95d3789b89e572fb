# SPDX-License-Identifier: Apache-2.0
"""Checks of policies: the simulator on this kernel, memory brought ahead, time slices by class, all undone."""
import json
import os
import re
import signal
import statistics
import subprocess
import threading
import time

from harness import (CARRY, LIBS, PREFIX, Daemon, Failed, ctl, named, options, pid_of, program, report, results_of,
                     run, wait_ready)


def check_policy_simulate():
    """Every shipped object loads into this kernel and runs; the simulator's figures are the same anywhere."""
    simulate = [f"{PREFIX}/bin/gpuobsctl", "policy", "simulate"]
    names = ["evict_lru", "evict_lfu", "evict_2q", "evict_mru", "evict_quota", "evict_priority", "kv_cache",
             "pin_protect", "prefetch_args", "prefetch_stride", "prefetch_tree", "prefetch_written",
             "sched_class", "sched_deadline", "sched_fair", "pace_depth", "stream_class"]
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


def is_balanced(p):
    return p["asked"] == p["done"] + p["refused"] + p["waiting"]


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
            ok = ok and got == want and p["state"] == "active" and p["done"] > 0 and is_balanced(p)
            parts.append(f"{median:.1f} ms with {name} ({describe(p)})")
    report("policy memory", ok, "; ".join(parts))


def decode(log):
    """A decoder fed from the host: its tokens in ms, ascending, and what else it says."""
    arguments = ["8" if options.quick else "14", "80", "4096"]
    text, _ = run([program("kv_decode"), *arguments], log, env=LIBS, check=False)
    if "SKIP" in text:
        return None
    said = {line.split(" ", 1)[0]: line.split()[1:] for line in text.splitlines() if " " in line}
    if "result" not in said:
        raise Failed("kv_decode did not finish")
    tokens = sorted(float(t) / 1000 for t in said["tokens"])
    filled = [float(t) for t in said["filled"]]
    return {"pid": int(said["pid"][0]), "result": said["result"], "mean": statistics.mean(tokens),
            "p50": tokens[len(tokens) // 2], "p99": tokens[len(tokens) * 99 // 100], "longest": tokens[-1],
            "filled": statistics.median(filled), "total": float(said["total"][0])}


def say_tokens(r):
    return (f"{r['mean']:.2f} ms a token (p50 {r['p50']:.2f}, p99 {r['p99']:.2f}, longest {r['longest']:.1f}), "
            f"caches filled in {r['filled']:.0f} ms, all {r['total']:.0f} ms")


def faults_of(pid):
    time.sleep(2)
    p = json.loads(ctl(["uvm", "--json", "--pid", str(pid)])[0])
    return p["total"]["gpu_faults"], p["dropped"]


def check_policy_kv():
    """Decoding from caches that the host fills: fewer faults and faster tokens with prefetch_written than stock."""
    stock = decode("policy_kv")
    if stock is None:
        report("policy kv", None, "too little memory is free")
        return
    parts, found = [f"stock: {say_tokens(stock)}"], {}
    with Daemon("policy_kv", device=False, settings=["managed_memory=yes"]):
        for name in (None, "prefetch_written", "prefetch_stride", "prefetch_tree"):
            if name:
                ctl(["policy", "load", name, "--process", "kv_decode"])
            got = decode("policy_kv")
            got["faults"], dropped = faults_of(got["pid"])
            text = f"{name or 'watched'}: {say_tokens(got)}, {got['faults']} GPU faults, {dropped} events dropped"
            if name:
                p = policy(name)
                ctl(["policy", "unload", name])
                got["sound"] = p["state"] == "active" and is_balanced(p)
                text += f" ({describe(p)})"
            found[name] = got
            parts.append(text)
    best, watched = found["prefetch_written"], found[None]
    ok = (all(r["result"] == stock["result"] for r in found.values()) and best["sound"] and
          best["faults"] < watched["faults"] / 2 and best["mean"] < stock["mean"] and best["p99"] < stock["p99"])
    report("policy kv", ok, "; ".join(parts))


# Reserves beyond what any GPU has free: they evict all the time, whatever is chosen.
EVICTING = {name: "reserve_blocks=131072" for name in
            ("evict_lru", "evict_lfu", "evict_2q", "evict_mru", "evict_priority", "kv_cache", "pin_protect")}
EVICTING["evict_quota"] = "quota_mib=16"


def uvm_of(pid):
    """Of a process that has ended, once its last events are in."""
    for _ in range(30):
        row = json.loads(ctl(["uvm", "--json", "--pid", str(pid)])[0])
        if row["watch"] == "ended":
            break
        time.sleep(0.1)
    return row


def walk_watched(mib, passes):
    """(result, what uvm says of it), or None where there is too little memory."""
    text, _ = run([program("managed"), str(mib), str(passes)], "policy_evict", env=LIBS, check=False)
    if "SKIP" in text:
        return None
    if len(re.findall(r"^pass ([0-9.]+)$", text, re.M)) != passes:
        raise Failed("managed did not finish")
    return results_of(text), uvm_of(pid_of(text))


def evict(name, mib, passes):
    """One policy: what it did, by its account and by what was seen to move; whether that is as it should be."""
    ctl(["policy", "load", name, "--process", "managed", "--set", EVICTING[name]])
    got = walk_watched(mib, passes)
    if got is None:
        raise Failed("too little memory is free by now")
    result, seen = got
    p = policy(name)
    ctl(["policy", "unload", name])
    # Blocks that the process took back itself before the order came did not move by it.
    moved = p["bytes_seen"] >= 8 << 20 and seen["total"]["bytes_to_cpu"] >= p["bytes_seen"]
    sound = p["state"] == "active" and is_balanced(p) and p["settings"] == 0 and p["done"] > 0
    return result, moved and sound, (f"{name}: ordered {p['bytes'] >> 20} MiB, seen {p['bytes_seen'] >> 20}, "
                                     f"to the host {seen['total']['bytes_to_cpu'] >> 20} ({describe(p)})")


def check_policy_evict():
    """Each policy that evicts, made to evict all the time: memory goes to the host, results are right, nothing stays."""
    mib, passes = (64, 4) if options.quick else (128, 6)
    began = time.monotonic()
    with Daemon("policy_evict", device=False, settings=["managed_memory=yes"]):
        plain = walk_watched(mib, passes)
        if plain is None:
            report("policy evict", None, "too little memory is free")
            return
        ok, parts = True, []
        for name in EVICTING:
            result, good, text = evict(name, mib, passes)
            ok = ok and good and result == plain[0]
            parts.append(text + ("" if good and result == plain[0] else " (NOT as it should be)"))
        after = walk_watched(mib, passes) or ([], {"total": {"bytes_to_gpu": 0}})
        left = ctl(["policy", "list", "--json"])[0].strip()
    # Without a policy all memory goes to the GPU in each pass, as before.
    back = after[1]["total"]["bytes_to_gpu"] >= plain[1]["total"]["bytes_to_gpu"] * 0.9
    seconds = time.monotonic() - began
    ok = ok and after[0] == plain[0] and not left and back
    report("policy evict", ok, f"{seconds:.0f} s; " + "; ".join(parts) + f"; policies left: {left or 'none'}")


def scripted_until(key, load, **values):
    """The policy for tests asks for one thing ten times a second until it is done; false: it was not within 3 s."""
    if load:
        ctl(["policy", "load", os.path.join(CARRY, "data", "policy_scripted.bpf.o"), "--name", "scripted",
             "--process", "managed", "--set", "on=1"])
    for name, value in {**values, "process": key, "on": 9}.items():
        ctl(["policy", "set", "scripted", f"{name}={value}"])
    for _ in range(30):
        if policy("scripted")["done"]:
            break
        time.sleep(0.1)
    ctl(["policy", "set", "scripted", "on=1"])
    return policy("scripted")["done"] > 0


class Walker:
    """managed, walking over memory until it is killed."""

    def __init__(self, mib):
        self.mib = mib
        self.times = []
        self.process = subprocess.Popen([program("managed"), str(mib), "100000"], env={**os.environ, **LIBS},
                                        text=True, stdout=subprocess.PIPE)
        text = self.process.stdout.readline() + self.process.stdout.readline()
        self.address = re.search(r"^address (\d+)$", text, re.M)
        threading.Thread(target=self.collect, daemon=True).start()

    def collect(self):
        for line in self.process.stdout:
            self.times.append(float(line.split()[1]))

    def until(self, count):
        deadline = time.monotonic() + 30
        while len(self.times) < count:
            if time.monotonic() > deadline:
                raise Failed("managed does not go on")
            time.sleep(0.001)

    def to_gpu(self):
        text = ctl(["uvm", "--json", "--pid", str(self.process.pid)])[0]
        return json.loads(text)["total"]["bytes_to_gpu"]

    def passes(self, n):
        """Of the next n whole passes: the median in ms, and how much of the memory went to the GPU in each."""
        first = len(self.times) + 1
        self.until(first)
        before = self.to_gpu()
        self.until(first + n)
        moved = (self.to_gpu() - before) / (n * self.mib << 20)
        return statistics.median(self.times[first:first + n]), moved

    def end(self):
        self.process.kill()
        self.process.wait()


def check_policy_killed():
    """A preferred location whose daemon is killed stays until the next daemon takes it back."""
    mib, preferred = 256, False
    with Daemon("policy_killed", device=False, settings=["managed_memory=yes"]) as d:
        w = Walker(mib)
        try:
            if not w.address:
                report("policy killed", None, "too little memory is free")
                return
            w.passes(1)
            stock = w.passes(6)
            for key in range(1, 5):
                preferred = preferred or scripted_until(key, key == 1, kind=3, to=0xffffffff,
                                                        address=int(w.address[1]), bytes=mib << 20)
            w.passes(1)
            there = w.passes(6)
            d.kill()
            w.until(len(w.times) + 2)
            d.start()
            w.until(len(w.times) + 1)  # it calls CUDA: now the daemon knows it
            ctl(["uvm", "--watch", "--pid", str(w.process.pid)])
            w.process.send_signal(signal.SIGUSR1)  # what is mapped stays mapped until it moves
            w.passes(2)
            back = w.passes(6)
        finally:
            w.end()
    with open(os.path.join(options.out, "daemon.log"), encoding="utf-8") as f:
        said = re.findall(r"left by a daemon that was killed: (\d+) taken back, (\d+) gone[^,]*, (\d+) failed",
                          f.read().split("--- policy_killed", 1)[1])
    taken_back = len(said) == 1 and int(said[0][0]) >= 1 and said[0][2] == "0"
    ok = preferred and taken_back and stock[1] > 0.7 and there[1] < 0.3 and back[1] > 0.7
    report("policy killed", ok, "; ".join(f"{name}: {ms:.1f} ms a pass, {100 * moved:.0f} % of it moved to the GPU"
                                          for name, (ms, moved) in
                                          {"stock": stock, "preferred at the host": there, "next daemon": back}.items())
           + f"; said: taken back, gone, failed {said}")


def start_spin(name, seconds):
    return subprocess.Popen([named(name, "spin"), str(seconds)], stdout=subprocess.PIPE, text=True)


def check_policy_slices():
    """Two spinning processes: equal, then one with long slices by a policy, then equal again once it is unloaded."""
    with Daemon("policy_slices", device=False):
        spins = [start_spin("spin_quick", 15), start_spin("spin_batch", 15)]
        wait_ready(spins)
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
    ok = (p["state"] == "active" and p["settings"] == 2 and is_balanced(p) and 0.8 < ratios[0] < 1.25 and
          ratios[1] > 3 and 0.8 < ratios[2] < 1.25)
    report("policy slices", ok,
           f"kernels of the two: {counts[0]} before, {counts[1]} with sched_class, {counts[2]} after it was unloaded; "
           f"{describe(p)}, {p['settings']} settings in force")


CHECKS = {
    "policy_simulate": check_policy_simulate,
    "policy_memory": check_policy_memory,
    "policy_evict": check_policy_evict,
    "policy_slices": check_policy_slices,
    "policy_kv": check_policy_kv,
    "policy_killed": check_policy_killed,
}
