# SPDX-License-Identifier: Apache-2.0
"""Checks of what launches are given: memory brought for kernels by their arguments, and what telling costs."""
import json
import os
import statistics
import subprocess
import time

from harness import LIBS, Daemon, Failed, agent_env, ctl, options, program, report, run
from policy_checks import describe, is_balanced, policy
from sched_checks import slices

SHAPES = ["grid", "parts", "elements"]
TARGET = 5  # times faster than the driver's faulting


class Touch:
    """The program touch, pass by pass."""

    def __init__(self, *arguments, agent=False):
        env = {**os.environ, **LIBS, **(agent_env() if agent else {})}
        self.process = subprocess.Popen([program("touch"), *arguments], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = int(self.process.stdout.readline().split()[1])

    def passes(self, n):
        """The numbers of n lines; None: it has to skip."""
        rows = []
        for _ in range(n):
            try:
                self.process.stdin.write("\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                pass
            words = self.process.stdout.readline().split()
            if words and words[0] == "SKIP:":
                return None
            if not words:
                raise Failed(f"touch ended with {self.process.wait()}")
            rows.append([float(x) for x in words[1:]])
        return rows

    def result(self):
        text, _ = self.process.communicate(timeout=120)
        if self.process.returncode or not text.startswith("result "):
            raise Failed(f"touch ended with {self.process.returncode}: {text}")
        return text.strip()


def gpu(rows):
    return statistics.median(r[0] for r in rows)


def say(rows):
    return (f"{gpu(rows):.1f} ms ({min(r[0] for r in rows):.1f} to {max(r[0] for r in rows):.1f}), "
            f"CPU {statistics.median(r[1] for r in rows):.0f} ms")


def losses(pid):
    text, _ = ctl(["losses", "--json", "--pid", str(pid)], check=False)
    rows = json.loads(text)["processes"] if text else []
    causes = {c["cause"]: c["count"] for c in rows[-1]["losses"]["causes"]} if rows else {}
    return {c: n for c, n in causes.items() if n and (c.startswith("argument") or c.startswith("uvm"))}


def sound(p):
    return p["state"] == "active" and is_balanced(p) and not p["settings"]


def to_gpu(pid):
    """Bytes that the driver says it has moved to the GPU for the process."""
    time.sleep(2)
    return json.loads(ctl(["uvm", "--json", "--pid", str(pid)])[0])["total"]["bytes_to_gpu"]


def driven(t, mib, n):
    """Of n passes: the rows, and the driver's side: how much of the memory moved in each, and the time slices."""
    t.passes(1)
    before = to_gpu(t.pid)
    rows = t.passes(n)
    return rows, (to_gpu(t.pid) - before) / (n * mib << 20), slices(t)


def nothing_left(before, after):
    """As without a policy all of the memory moves in each pass, and the slices are what they were."""
    return before[0] > 0.7 and after[0] > 0.7 and before[1] == after[1] and len(after[1]) > 0


def with_policies(mib, shape, counts):
    """A process with the agent: passes watched, with the policy at launches alone, with all of it, and after it."""
    found, t = {}, Touch(str(mib), shape, agent=True)
    found["watched"], *stock = driven(t, mib, counts[0])
    ctl(["policy", "load", "prefetch_args", "--process", "touch", "--set", "early_ms=0"])
    time.sleep(0.3)
    found["prefetch_args at the launch"] = t.passes(counts[1])
    at_launch = policy("prefetch_args")
    ctl(["policy", "set", "prefetch_args", "early_ms=10"])
    found["prefetch_args"] = t.passes(counts[2])
    p = policy("prefetch_args")
    ctl(["policy", "unload", "prefetch_args"])
    time.sleep(0.3)
    found["after"], *left = driven(t, mib, counts[0])
    told = (f"at the launch: {describe(at_launch)}; in all: {describe(p)}; moved in a pass and slices: before "
            f"{100 * stock[0]:.0f} % {stock[1]} us, after {100 * left[0]:.0f} % {left[1]} us")
    is_sound = sound(p) and at_launch["done"] > 0 and nothing_left(stock, left)
    return found, t.result(), told, is_sound, losses(t.pid)


def check_shape(shape, mib, counts):
    """One way to pass the pointer: stock, then through the daemon."""
    t = Touch(str(mib), shape)
    rows = t.passes(2 * (1 + counts[0]) + counts[1] + counts[2])
    if rows is None:
        report(f"policy args {shape}", None, "too little memory is free")
        return
    stock, wanted = rows[1:], t.result()
    with Daemon("policy_args_" + shape, settings=["managed_memory=yes"]):
        found, result, told, is_sound, lost = with_policies(mib, shape, counts)
    late = gpu(stock) / gpu(found["prefetch_args at the launch"])
    ratio = gpu(stock) / gpu(found["prefetch_args"])
    back = gpu(found["after"]) / gpu(found["watched"])
    same = result == wanted
    report(f"policy args {shape}", is_sound and same and 0.5 < back < 2 and (ratio >= TARGET or shape != "grid"),
           f"{mib} MiB: {ratio:.2f} times as fast (of {TARGET}), {late:.2f} at the launch alone, results "
           f"{'equal' if same else 'DIFFER'}; "
           + "; ".join(f"{name} {say(r)}" for name, r in {"stock": stock, **found}.items())
           + f"; {told}; losses {lost or 'none'}")


def check_policy_args():
    """Memory touched by the CPU, then the GPU: a pass with the launch-argument policy against the driver's faulting."""
    mib, counts = (256, (2, 4, 4)) if options.quick else (1024, (3, 6, 7))
    for shape in SHAPES:
        check_shape(shape, mib, counts)


def least(t, n=5):
    return min(r[0] for r in t.passes(n))


def check_args_cost():
    """What a launch costs: without anything, with the agent, and with a policy that is told what it is given."""
    n = "20000"
    plain = Touch("launches", n)
    if plain.passes(1) is None:
        report("args cost", None, "too little memory is free")
        return
    plain_ns = least(plain)
    plain.result()
    with Daemon("args_cost", settings=["managed_memory=yes"]):
        t = Touch("launches", n, agent=True)
        t.passes(1)
        agent_ns = least(t)
        ctl(["policy", "load", "prefetch_args", "--process", "touch"])
        time.sleep(0.3)
        told_ns = least(t)
        p = policy("prefetch_args")
        ctl(["policy", "unload", "prefetch_args"])
        time.sleep(0.3)
        after_ns = least(t)
        t.result()
        lost = losses(t.pid)
    ok = p["state"] == "active" and p["events"] > 0 and after_ns < told_ns
    report("args cost", ok,
           f"ns a launch: {plain_ns:.0f} plain, {agent_ns:.0f} with the agent, {told_ns:.0f} told of, "
           f"{after_ns:.0f} after; {describe(p)}; losses {lost or 'none'}")


def check_uvm_model():
    """The simulator's model of managed memory against the device, within its memory."""
    text, _ = run([program("uvm_model_check"), "256" if options.quick else "1024"], "uvm_model", env=LIBS, check=False)
    lines = text.strip().splitlines()
    skipped = bool(lines) and lines[-1].startswith("SKIP")
    report("uvm model", None if skipped else bool(lines) and lines[-1] == "uvm_model_check: 0 patterns off",
           " ; ".join(lines))


CHECKS = {
    "policy_args": check_policy_args,
    "args_cost": check_args_cost,
    "uvm_model": check_uvm_model,
}
