# SPDX-License-Identifier: Apache-2.0
"""gpuobsctl attach and detach of programs that are at work: run by tests/gpu/run."""
import os
import re
import statistics
import subprocess
import sys
import time

from harness import (LIBS, RUN, TOP, Daemon, Failed, count, ctl, describe, has_torch, options, program, report,
                     results_of, run, sane)


def spawn(command, log):
    f = open(os.path.join(options.out, log + ".log"), "a", encoding="utf-8")
    return subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": "1"}, text=True, stdout=subprocess.PIPE,
                            stderr=f)


def gpuobsctl(*arguments):
    """Exit code and what was said, without raising: a refusal is a finding."""
    socket = ["--agent-socket", f"{RUN}/agent.sock"] if arguments[0] == "attach" else []
    out, code = ctl([arguments[0], *socket, *arguments[1:]], check=False)
    return code, out.strip()


def read_until(p, mark):
    """What it prints up to the line that begins so."""
    text = ""
    for line in p.stdout:
        text += line
        if line.startswith(mark):
            return text
    raise Failed(f"the program ended before it printed '{mark}'")


def attached_run(name, command, slower, mark, before_s, during_s):
    """Run, then run slower, attach in the middle, detach, and let it run to its end."""
    plain, _ = run(command, name, timeout=400)
    with Daemon(name) as d:
        p = spawn(command + slower, name)
        begun = read_until(p, mark)
        time.sleep(before_s)
        begin = time.monotonic()
        marks = [time.monotonic_ns()]
        code, said = gpuobsctl("attach", str(p.pid))
        took = time.monotonic() - begin
        marks.append(time.monotonic_ns())
        alive = p.poll() is None
        time.sleep(during_s)
        coverage = ctl(["coverage", "--pid", str(p.pid)], check=False)[0]
        kernels = ctl(["coverage", "--pid", str(p.pid), "--kernels"], check=False)[0]
        marks.append(time.monotonic_ns())
        left = gpuobsctl("detach", str(p.pid))[0] if code == 0 else None
        marks.append(time.monotonic_ns())
        still = p.poll() is None
        out = begun + p.communicate(timeout=400)[0]
        records = d.launches(p.pid)
        unmatched = {c["cause"]: c["count"] for c in d.ledger(p.pid)["causes"]}.get("device_record_unmatched", 0)
        said += ctl(["ps"], check=False)[0]
    with open(os.path.join(options.out, name + ".log"), "a", encoding="utf-8") as f:
        f.write(f"$ attach: {code} {said}\n{coverage}\n{kernels}\n")
    if p.returncode != 0:
        raise Failed(f"the program ended with {p.returncode}; attach gave {code} {said}")
    if not alive or not still:
        raise Failed("the program had ended before it could be attached to and detached from; make it longer")
    return plain, out, records, marks, code, left, took, coverage, unmatched


def judge(name, label, command, slower, mark, before_s, during_s, share_wanted, wait_ms_max):
    plain, out, records, marks, code, left, took, coverage, unmatched = attached_run(name, command, slower, mark,
                                                                                     before_s, during_s)
    settle = 1_500_000_000  # images are looked for after attach has returned
    before = [r for r in records if r["cpu_enter_ns"] < marks[0]]
    during = [r for r in records if marks[1] + settle < r["cpu_enter_ns"] < marks[2]]
    after = [r for r in records if r["cpu_enter_ns"] > marks[3]]

    def started(rs):
        return sum(1 for r in rs if r["gpu_start_ns"] is not None)

    # Launches that pause have nothing before them: a long wait would be of records given to others' launches.
    waits = [r["gpu_start_ns"] - r["cpu_enter_ns"] for r in during if r["gpu_start_ns"] is not None]
    wait_ms = statistics.median(waits) / 1e6 if waits else float("nan")
    same = results_of(plain) == results_of(out) and bool(results_of(plain))
    wanted = started(during) >= share_wanted * len(during) and bool(during)
    ok = (code == 0 and left == 0 and same and bool(before) and not sane(records) and not started(before)
          and not started(after) and wanted and not unmatched and wait_ms < wait_ms_max)
    reasons = sorted(set(re.findall(r"(loaded before attach[^\n]*|stays as it was loaded[^\n]*)", coverage)))
    report(label, ok,
           f"attach {code} in {took:.2f} s, detach {left}; results {'identical' if same else 'DIFFER'}; before: "
           f"{started(before)} of {len(before)} with start; during: {started(during)} of {len(during)}, "
           f"{count(during, 'end_kind', 'measured')} with end, {describe(during)}, median wait {wait_ms:.3f} ms, "
           f"{unmatched} records of no launch; after: {started(after)} of "
           f"{len(after)}; impossible times {sane(records)}; {'; '.join(reasons[:6])}")


def check_attach():
    judge("attach_app", "attach app", [program("app"), "--launches", "40000", "--threads", "2", "--streams", "2"],
          ["--pause", "100"], "pid ", 1.5, 3, 0.95, 0.5)


def check_attach_torch():
    if not has_torch(sys.executable):
        report("attach torch", None, "no PyTorch here")
        return
    judge("attach_torch", "attach torch",
          [sys.executable, os.path.join(TOP, "tests/gpu/torch_workload.py")], ["--steps", "400"], "time first_step",
          1, 4, 0.8, 1000)


def check_attach_facts():
    """What the driver says of a handle of the other kind; asked in a process that may die of it."""
    text, _ = run([program("attach_facts")], "attach_facts", env=LIBS, check=False)
    lines = text.strip().splitlines()
    report("attach facts", None if lines and lines[-1].startswith("SKIP") else bool(lines) and lines[-1] == "attach_facts: 0 failed",
           " ; ".join(lines))


CHECKS = {
    "attach_facts": check_attach_facts,
    "attach": check_attach,
    "attach_torch": check_attach_torch,
}
