# SPDX-License-Identifier: Apache-2.0
"""Programs as people have them, with and without the agent: cuBLAS, Triton, training in PyTorch,
graphs, streams, threads (workloads.py); a sample of each thing CUDA programs do (samples.cu,
nested.cu), also with device programs in it; how soon a device program's first count is there.

tests/gpu/run --only workloads,workload_start,workload_programs,samples,sample_programs,first_data

Each part of the workloads and each program has a row of its own. Without PyTorch its rows are
skipped, and those with Triton where that cannot compile.
"""
import collections
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from harness import (CARRY, Daemon, Failed, agent_env, alternate, brief, ctl, describe, has_torch, issued,
                     json_rows, options, program, report, results_of, run, sane, share, times, torch_command)
from launch_checks import observe, same_results, unexplained
from probe_checks import COUNT, counted, wait_active

SHIPPED = {name: os.path.join(CARRY, f"data/{name}.bpf.o")
           for name in ("mem_bytes", "mem_heat", "warp_lanes", "sm_balance", "block_time")}
GROUPS = {  # a process each
    "libraries": ["cublas", "epilogue", "solvers", "triton_softmax", "triton_matmul", "triton_attention", "streams",
                  "threads"],
    "training": ["train_fp32", "train_bf16", "graph"],
    "compiled": ["compiled_fp32", "compiled_bf16"],
}
STARTED, EXITS = 0.95, 0.90  # shares of launches, and of kernels, that are wanted
ADDED_S = 1.0                # to the import and the first step, at most
FIRST_DATA_MS = 1000


def reasons_of(kernels):
    """What coverage says of kernels, by name: why they are not probed in full."""
    why = collections.defaultdict(set)
    for k in kernels:
        if k.get("reason"):
            why[k["kernel"]].add(k["reason"])
    return why


def missing_ends(records, kernels):
    """'REASON: kernels (launches)' of the launches that have no measured end."""
    why, launches, names = reasons_of(kernels), collections.Counter(), collections.defaultdict(set)
    for r in records:
        if r["end_kind"] == "measured":
            continue
        reason = " and ".join(sorted(why[r["kernel"]])) or "no reason known"
        if r["gpu_start_ns"] is None:
            reason += " (no start either)"
        launches[reason] += 1
        names[reason].add(r["kernel"])
    return "; ".join(f"{reason}: {len(names[reason])} kernels ({n} launches)" for reason, n in launches.most_common())


def started(records):
    return sum(1 for r in records if r["gpu_start_ns"] is not None)


# ---- PyTorch ----

def results_by_part(text):
    """{part: {name: digest}}"""
    found = collections.defaultdict(dict)
    for part, name, value in re.findall(r"^result (\w+)\.(\S+) (\S+)$", text, re.M):
        found[part][name] = value
    return found


def said_of(word, text):
    """{part: reason} of the parts that were skipped or failed."""
    return dict(re.findall(rf"^{word} (\w+) (.*)$", text, re.M))


def judge_part(part, plain, again, traced, records, kernels):
    skipped = [said_of("skip", text).get(part) for text in (plain, again, traced)]
    if all(skipped):
        report("workload " + part, None, skipped[0])
        return
    for how, text in (("without the agent", plain), ("without the agent, again", again), ("with the agent", traced)):
        found = re.search(rf"^part {part} (\d+) (\d+)$", text, re.M)
        if not found:
            why = {**said_of("skip", text), **said_of("failed", text)}.get(part, "it never came to its end")
            report("workload " + part, False, f"{how}: {why}")
            return
    begin, end = int(found[1]), int(found[2])
    first, second, third = (results_by_part(text)[part] for text in (plain, again, traced))
    stable = {name for name in first if second.get(name) == first[name]}
    differing = sorted(name for name in stable if third.get(name) != first[name])
    unstable = sorted(set(first) - stable)
    mine = [r for r in records if begin <= r["cpu_enter_ns"] <= end]
    ok = (bool(stable) and not differing and bool(mine) and started(mine) >= STARTED * len(mine) and not sane(mine))
    lacking = missing_ends(mine, kernels)
    report("workload " + part, ok,
           f"results {'DIFFER: ' + ' '.join(differing) if differing else 'identical'} in {len(stable)} of {len(first)}"
           f"{' (different by themselves: ' + ' '.join(unstable) + ')' if unstable else ''}; {describe(mine)}, "
           f"impossible times {sane(mine)}{'; without measured end: ' + lacking if lacking else ''}")


def run_group(group, parts, env):
    """The records and the coverage of the run with the agent."""
    log, command = "workload_" + group, torch_command("workloads.py", *parts)
    plain, _ = run(command, log, env=env)
    again, _ = run(command, log, env=env)
    with Daemon(log) as d:
        traced, records, kernels, ledger = observe(log, command, env=env, daemon=d)
    for part in parts:
        judge_part(part, plain, again, traced, records, kernels)
    report("workload " + group, ledger is not None and ledger["produced"] == ledger["stored"] + ledger["lost"],
           f"{brief(ledger)}; {describe(records)}; daemon RSS {d.rss_kib // 1024} MiB")
    return records, kernels


def judge_kernels(runs):
    """Of the kernels that were launched, how many have probes at their exits."""
    launched, probed, why = set(), {}, collections.defaultdict(set)
    for records, kernels in runs:
        launched |= {r["kernel"] for r in records}
        for k in kernels:
            probed[k["kernel"]] = probed.get(k["kernel"], True) and k["end"] != "none"
        for name, reasons in reasons_of(kernels).items():
            why[name] |= reasons
    good = {name for name in launched if probed.get(name)}
    rest = collections.Counter(" and ".join(sorted(why[name])) or "not in the coverage list"
                               for name in launched - good)
    loaded = sum(probed.values())
    report("workload kernels", bool(launched) and len(good) >= EXITS * len(launched),
           f"exits probed of {len(good)} of {len(launched)} kernels that were launched "
           f"({share(len(good), len(launched))}), of {share(loaded, len(probed))} of the {len(probed)} in the images "
           f"that were loaded; the rest of those launched: {'; '.join(f'{reason}: {n}' for reason, n in rest.most_common()) or 'none'}")


def check_workloads():
    """Each part: results to the last bit, starts and ends of launches."""
    if not has_torch(sys.executable):
        report("workloads", None, "there is no PyTorch here")
        return
    runs = []
    with tempfile.TemporaryDirectory() as cache:
        env = {"TORCHINDUCTOR_CACHE_DIR": cache + "/inductor", "TRITON_CACHE_DIR": cache + "/triton"}
        for group, parts in GROUPS.items():
            parts = parts[:1] if group == "compiled" and options.quick else parts
            try:
                runs.append(run_group(group, parts, env))
            except (Failed, subprocess.TimeoutExpired) as e:
                report("workload " + group, False, str(e))
    judge_kernels(runs)


def check_workload_start():
    """Import of PyTorch and the first step of training."""
    if not has_torch(sys.executable):
        report("workload start", None, "there is no PyTorch here")
        return

    def measure(_, with_agent):
        command = torch_command("workloads.py", "train_fp32")
        if with_agent:
            with Daemon("workload_start"):
                text, _ = run(command, "workload_start", env=agent_env())
        else:
            text, _ = run(command, "workload_start")
        return times(text, "import") + times(text, "train_fp32_first_step")

    values = alternate({"without": False, "with": True}, measure, 3)
    if any(len(v) != 2 for vs in values.values() for v in vs):
        raise Failed("the first step failed; see workload_start.log")
    # what disturbs only adds; the import, which is the longer part, does nothing with a GPU
    least = {name: [min(parts) for parts in zip(*vs)] for name, vs in values.items()}
    import_s, step_s = (after - before for before, after in zip(least["without"], least["with"]))
    report("workload start", import_s + step_s <= ADDED_S,
           f"import {import_s:+.2f} s and first step {step_s:+.2f} s (of {ADDED_S:.0f} together); "
           + "; ".join(f"{name} the agent: {', '.join(f'{i:.2f} + {s:.2f}' for i, s in vs)}"
                       for name, vs in values.items()))


def check_workload_programs():
    """With all programs that come with it in their kernels, accesses included, results are the same to the last bit."""
    if not has_torch(sys.executable):
        report("workload programs", None, "there is no PyTorch here")
        return
    for group in ("libraries", "training"):
        log, command = "workload_programs", torch_command("workloads.py", *GROUPS[group])
        plain, again = (results_by_part(run(command, log)[0]) for _ in range(2))
        with Daemon(log) as d:
            load_programs(SHIPPED, "--process", "python*")
            traced, _, kernels, _ = observe(log, command, daemon=d)
        got = results_by_part(traced)
        at_accesses = sum(1 for k in kernels if k.get("accesses_probed"))
        stable = {(part, name) for part in plain for name in plain[part] if again[part].get(name) == plain[part][name]}
        differing = sorted(f"{part}.{name}" for part, name in stable if got[part].get(name) != plain[part][name])
        report("workload programs " + group, bool(stable) and not differing and at_accesses > 0,
               f"results {'DIFFER: ' + ' '.join(differing) if differing else 'identical'} in {len(stable)}; "
               f"programs at accesses of {at_accesses} of {len(kernels)} kernels")


# ---- samples ----

def occupancies(text):
    return dict(re.findall(r"^occupancy (\S+) (\d+)$", text, re.M))


def registers(text):
    return dict(re.findall(r"^registers (\S+) (\d+)", text, re.M))


def compare_occupancy(plain, traced):
    """What of the occupancy changed although the kernel has no more registers; what is said of the rest."""
    before, after = occupancies(plain), occupancies(traced)
    more = {name for name, n in registers(traced).items() if int(n) > int(registers(plain)[name])}
    changed = sorted(name for name in before if after.get(name) != before[name])
    wrong = [name for name in changed if name.split(".")[0] not in more]
    return wrong, (f"{len(before) - len(changed)} of {len(before)} occupancies equal" +
                   "".join(f", {name} {before[name]} -> {after.get(name)}" for name in changed) +
                   (", more registers in " + ", ".join(f"{name} {registers(plain)[name]} -> {registers(traced)[name]}"
                                                       for name in sorted(more)) if more else ""))


def check_samples():
    """What CUDA programs do with kernels comes out as without the agent; every launch has a start."""
    for name in ("samples", "nested"):
        try:
            plain, _ = run([program(name)], name)
            with Daemon(name) as d:
                traced, records, kernels, ledger = observe(name, [program(name)], daemon=d)
        except (Failed, subprocess.TimeoutExpired) as e:
            report(name, False, str(e))
            continue
        same, lacking, ends = same_results(plain, traced), unexplained(records, kernels), missing_ends(records, kernels)
        wrong, occupancy = compare_occupancy(plain, traced)
        differing = sorted({line.split()[1] for line in set(results_of(plain)) ^ set(results_of(traced))})
        report(name, same and len(records) == issued(traced) == started(records) and not lacking and not wrong
               and not sane(records),
               f"results {'identical' if same else 'DIFFER: ' + ' '.join(differing)}, issued {issued(traced)}, "
               f"{describe(records)}, impossible times {sane(records)}; {occupancy}"
               f"{'; unexplained: ' + ' '.join(lacking) if lacking else ''}"
               f"{'; without measured end: ' + ends if ends else ''}; {brief(ledger)}")


class Samples:
    """The samples under the agent, round by round."""

    def __enter__(self):
        self.process = subprocess.Popen([program("samples"), "--rounds"], env={**os.environ, **agent_env()}, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.limit = threading.Timer(120, self.process.kill)  # a round that hangs
        self.limit.start()
        self.rounds = 0
        return self

    def round(self):
        """Its results."""
        self.rounds += 1
        lines = []
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            while (line := self.process.stdout.readline()) != "done\n":
                lines.append(line)
                if not line:
                    raise BrokenPipeError
        except BrokenPipeError:
            raise Failed(f"the samples ended with {self.process.wait()} in round {self.rounds}") from None
        return results_of("".join(lines))

    def __exit__(self, *_):
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        finally:
            self.limit.cancel()


def seen(name):
    """What the program has counted: launches, or bytes of accesses and the kernels that made them."""
    if name == "count":
        launches, blocks, threads, _ = counted(name)
        return launches, f"{launches} launches, {blocks} blocks, {threads} threads"
    moved = [sum(r["value"][1:4]) for r in json_rows("map", "dump", name, "kernels", check=True)]
    return sum(moved), f"{sum(moved)} bytes in {sum(1 for n in moved if n)} kernels"


def certain_launches(why, records, rounds):
    """Launches of a round by kernels that coverage gives no reason for, which must be counted; and all."""
    return sum(1 for r in records if r["kernel"] not in why) // rounds, len(records) // rounds


def load_programs(programs, *scope):
    for name, path in programs.items():
        ctl(["probe", "load", path, "--name", name, *scope])


def check_program(label, programs, early, plain):
    """A round with device programs that are there before the process starts, or come after the first round."""
    name = next(iter(programs))
    with Daemon("sample_programs") as d:
        if early:
            load_programs(programs, "--process", "samples")
        with Samples() as app:
            if not early:
                app.round()
                load_programs(programs, "--pid", str(app.pid))
            for each in programs:
                wait_active(each, app.pid)
            got = app.round()
            n, text = seen(name)
            why = reasons_of(json_rows("coverage", "--kernels", "--pid", str(app.pid)))
            certain, most = certain_launches(why, d.launches(app.pid), app.rounds)
            for each in programs:
                ctl(["probe", "unload", each])
            time.sleep(1)
            after = app.round()
    code = app.process.returncode
    same = got == after == plain
    differing = sorted({line.split()[1] for lines in (got, after) for line in set(lines) ^ set(plain)})
    reasons = collections.Counter(" and ".join(sorted(found)) for found in why.values())
    report("samples " + label, same and n > 0 and code == 0 and (name != "count" or certain <= n <= most),
           f"results {'identical' if same else 'DIFFER: ' + ' '.join(differing)}; {text}; launches {most}, {certain} of "
           f"kernels without a reason; ended with {code}; reasons, by kernels: "
           f"{'; '.join(f'{r}: {k}' for r, k in reasons.most_common()) or 'none'}")


def check_sample_programs():
    """The samples with a device program that counts launches and threads, one at accesses, and all together."""
    plain = results_of(run([program("samples")], "samples")[0])
    cases = {"count": {"count": COUNT}, "bytes": {"mem_bytes": SHIPPED["mem_bytes"]},
             "all": {"count": COUNT, **SHIPPED}}
    for case, programs in cases.items():
        for when in ("before", "after"):
            label = f"{case} {when}"
            try:
                check_program(label, programs, when == "before", plain)
            except Failed as e:
                report("samples " + label, False, str(e))


# ---- the first count ----

def time_to_data(pid):
    """ms from before `probe load` until its first count was read."""
    began = time.monotonic()
    ctl(["probe", "load", COUNT, "--name", "count", "--pid", str(pid)])
    try:
        while time.monotonic() - began < 10:
            if any(r["value"][0] for r in json_rows("map", "dump", "count", "counts")):
                return 1000 * (time.monotonic() - began)
    finally:
        ctl(["probe", "unload", "count"], check=False)
    raise Failed("nothing was counted within 10 s")


def first_data_in(label, command, ready):
    """Load the program into what runs, three times; ready: the line from which on it launches."""
    with Daemon("first_data"):
        p = subprocess.Popen(command, env={**os.environ, **agent_env(), "PYTHONUNBUFFERED": "1"}, text=True,
                             stdout=subprocess.PIPE)
        limit = threading.Timer(90, p.kill)
        limit.start()
        try:
            while ready and not p.stdout.readline().startswith(ready):
                if p.poll() is not None:
                    raise Failed(f"the program ended with {p.returncode}")
            time.sleep(2)
            took = []
            for _ in range(3):
                took.append(time_to_data(p.pid))
                time.sleep(1)
            if p.poll() is not None:
                raise Failed("the program ended before all was measured; make it longer")
        finally:
            limit.cancel()
            p.send_signal(signal.SIGKILL)
            p.wait()
    report("first data " + label, max(took) < FIRST_DATA_MS,
           f"from probe load to the first count: {', '.join(f'{ms:.0f}' for ms in took)} ms (of {FIRST_DATA_MS})")


def check_first_data():
    """A device program comes into a process that launches."""
    cases = {"app": ([program("app"), "--launches", "3000000", "--threads", "2", "--streams", "2"], None)}
    if has_torch(sys.executable):
        cases["torch"] = (torch_command("torch_workload.py", "--only-steps", "--steps", "10000"), "time first_step")
    for label, (command, ready) in cases.items():
        try:
            first_data_in(label, command, ready)
        except Failed as e:
            report("first data " + label, False, str(e))


CHECKS = {
    "workloads": check_workloads,
    "workload_programs": check_workload_programs,
    "workload_start": check_workload_start,
    "samples": check_samples,
    "sample_programs": check_sample_programs,
    "first_data": check_first_data,
}
