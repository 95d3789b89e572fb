#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpuobsctl attach and detach, on the simulated GPU.

usage: attach_test.py BUILD SIM_ATTACH [STORM]

A program that launches in a loop is attached to: its launches become records with start
and end, matched exactly; what cannot be replaced says why; after detach they are launches
as before, and the results are right. Then a storm of it on programs whose main thread
sleeps, allocates, or is interrupted by signals all the time.
"""
import collections
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time

from daemon import Daemon, check, check_once, wait_for

build, sim_attach = (os.path.abspath(a) for a in sys.argv[1:3])
BREAKPOINT = 0xcc
STORM = int(sys.argv[3]) if len(sys.argv) > 3 else 5


def start(d, *arguments):
    p = subprocess.Popen([sim_attach, *arguments], env=d.environment(False), text=True, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(p.stdout.readline() == f"pid {p.pid}\n", "sim_attach starts")
    return p


def finish(p):
    out, err = p.communicate("end\n", timeout=60)
    check(p.returncode == 0, f"sim_attach ended with {p.returncode}: {err}")
    return int(out.split()[1])


def rows(d, pid, since=0, until=1 << 62):
    with sqlite3.connect(f"file:{d.database}?mode=ro", uri=True) as db:
        return db.execute("SELECT kernel, gpu_start_ns IS NOT NULL, end_kind, match FROM launches WHERE pid = ? "
                          "AND cpu_enter_ns BETWEEN ? AND ?", (pid, since, until)).fetchall()


def wait_for_launches(d, pid, more):
    """It has launched so many more than are known of now."""
    def known():
        return (d.ledger(pid) or {"produced": 0})["produced"]
    want = known() + more
    wait_for(60, lambda: known() >= want, f"{more} launches")


def share(found, of):
    return sum(1 for r in found if of(r)) / len(found) if found else 0


def check_replay(trace, key, found):
    """The trace of it, given to a correlator again, gives the same records."""
    out = subprocess.run([os.path.join(build, "tests/bench/correlate_replay"), trace], text=True, check=True,
                         stdout=subprocess.PIPE).stdout
    line = next(l for l in out.splitlines() if l.startswith(f"process {key}:"))
    replayed = {word: int(n) for word, n in re.findall(r"(\w+) (\d+)", line)}
    here = {kind: sum(1 for r in found if r[3] == kind) for kind in ("exact", "ordered", "inferred", "none")}
    here["started"] = sum(1 for r in found if r[1])
    print(f"replayed: {line}")
    check(replayed["produced"] == len(found), f"{line}: {len(found)} records")
    off = {k: (n, replayed[k]) for k, n in here.items() if k != "inferred" and n != replayed[k]}
    check(not off, f"records and what the replay makes of them: {off}")


def records():
    with tempfile.TemporaryDirectory() as directory, \
            Daemon(build, [f"trace={directory}/trace"]) as d:
        p = start(d, "1")
        wait_for_launches(d, p.pid, 200)
        before = time.monotonic_ns()
        print(d.agent_ctl("attach", p.pid).strip())
        d.agent_ctl("attach", p.pid, fails="attached to already")
        attached = time.monotonic_ns()
        time.sleep(2)
        wait_for_launches(d, p.pid, 500)
        coverage = d.ctl("coverage", "--pid", str(p.pid)) + d.ctl("coverage", "--pid", str(p.pid), "--kernels")
        leaving = time.monotonic_ns()
        print(d.agent_ctl("detach", p.pid).strip())
        detached = time.monotonic_ns()
        d.agent_ctl("detach", p.pid, fails="not attached")
        wait_for_launches(d, p.pid, 200)
        again = time.monotonic_ns()
        d.agent_ctl("attach", p.pid)
        attached_again = time.monotonic_ns()
        time.sleep(1)
        wait_for_launches(d, p.pid, 500)
        launches = finish(p)
        d.settled(p.pid)
        key = d.process_key(p.pid)
        rows_of_all = rows(d, p.pid)
        margin = 300_000_000
        early, during = rows(d, p.pid, 0, before), rows(d, p.pid, attached + margin, leaving - margin)
        after, second = rows(d, p.pid, detached, again), rows(d, p.pid, attached_again + margin)
        check(len(rows_of_all) == launches, f"{len(rows_of_all)} records of {launches} launches")
        check(early and not any(r[1] for r in early), "no start before")
        static = [r for r in during if r[0] in ("add_one", "add_two")]
        late = [r for r in during if r[0] == "add_late"]
        text = (f"{len(early)} before; {len(static)} during, {share(static, lambda r: r[1]):.1%} with start, "
                f"{share(static, lambda r: r[2] == 'measured'):.1%} with end, "
                f"{share(static, lambda r: r[3] == 'exact'):.1%} exact; {len(late)} of the image that is gone; "
                f"{len(after)} after; {len(second)} of the second time")
        print(text)
        check(late and not any(r[1] for r in late), "the image that is gone cannot be probed")
        check(after and not any(r[1] for r in after), "no start after")
        again_static = [r for r in second if r[0] in ("add_one", "add_two")]
        check("loaded before attach, image not found" in coverage, coverage)
        check("the module's variable counter" in coverage, coverage)
        d.stop()
        check_replay(f"{directory}/trace", key, rows_of_all)
        return (share(static, lambda r: r[1] and r[2] == "measured" and r[3] == "exact"),
                share(again_static, lambda r: r[1]))


def launched_all_the_time():
    """Nothing but the first launch with a start probe tells which launch the first record is of."""
    with Daemon(build, ["log_level=debug"]) as d:
        p = start(d, "2", "sleep", "stream")
        wait_for_launches(d, p.pid, 200)
        d.agent_ctl("attach", p.pid)
        attached = time.monotonic_ns()
        time.sleep(1)
        wait_for_launches(d, p.pid, 500)
        leaving = time.monotonic_ns()
        coverage = d.ctl("coverage", "--pid", str(p.pid), "--kernels")
        d.agent_ctl("detach", p.pid)
        finish(p)
        d.settled(p.pid)
        margin = 300_000_000
        during = rows(d, p.pid, attached + margin, leaving - margin)
        unmatched = {c["cause"]: c["count"] for c in d.ledger(p.pid)["causes"]}.get("device_record_unmatched", 0)
        print(f"{len(during)} while attached, without a synchronise: {share(during, lambda r: r[3] == 'exact'):.1%} exact; "
              f"{unmatched} records of no launch")
        return share(during, lambda r: r[1] and r[3] == "exact"), unmatched, collections.Counter(during), coverage


def storm(*arguments):
    with Daemon(build) as d:
        p = start(d, *arguments)
        begin = time.monotonic()
        for _ in range(STORM):
            d.agent_ctl("attach", p.pid)
            d.agent_ctl("detach", p.pid)
        each = (time.monotonic() - begin) / STORM
        wait_for(30, lambda: p.poll() is None, "it lives")
        finish(p)
        print(f"ok {STORM} times {' '.join(arguments)}: {each * 1e3:.0f} ms each")


def changed_code(pid, library):
    """Bytes of a library's code that are others in a process than in the file: breakpoints, and the rest."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            fields = line.split()
            if len(fields) < 6 or "x" not in fields[1] or os.path.basename(fields[5]) != library:
                continue
            start, end = (int(a, 16) for a in fields[0].split("-"))
            memory.seek(start)
            there = memory.read(end - start)
            with open(fields[5], "rb") as file:
                file.seek(int(fields[2], 16))
                found += [a for a, b in zip(there, file.read(end - start)) if a != b]
    return found.count(BREAKPOINT), len(found) - found.count(BREAKPOINT)


def descriptors(pid):
    directory = f"/proc/{pid}/fd"
    return sorted(f"{fd} {os.readlink(os.path.join(directory, fd))}" for fd in os.listdir(directory))


def memory_of(p):
    p.stdin.write("memory\n")
    p.stdin.flush()
    return int(p.stdout.readline().split()[1])


def leaves_nothing():
    """After detach the process has the code, threads, descriptors and GPU memory it had before."""
    with Daemon(build) as d:
        p = start(d, "2")
        time.sleep(0.3)
        threads, files, memory = sorted(os.listdir(f"/proc/{p.pid}/task")), descriptors(p.pid), memory_of(p)
        for _ in range(2):
            d.agent_ctl("attach", p.pid)
            time.sleep(0.5)
            d.ctl("probe", "load", os.path.join(build, "tests/bpf/probe_count.bpf.o"), "--pid", str(p.pid))
            wait_for(30, lambda: d.ctl("map", "dump", "probe_count", "counts", "--json", check_code=False), "it counts")
            hooked = changed_code(p.pid, "libcuda.so.1")[1]
            check(hooked > 100, f"{hooked} bytes of code are others while attached")
            check(len(descriptors(p.pid)) > len(files), "it has descriptors of its own")
            check(memory_of(p) < memory, "it has memory of the GPU")
            print(d.agent_ctl("detach", p.pid).strip())
            d.ctl("probe", "unload", "probe_count")
            wait_for(30, lambda: sorted(os.listdir(f"/proc/{p.pid}/task")) == threads, "its threads are gone")
            hooked = changed_code(p.pid, "libcuda.so.1")
            check(hooked[0] > 10 and hooked[1] == 0, f"only the kernel's breakpoints are left: {hooked}")
            check(descriptors(p.pid) == files, f"{descriptors(p.pid)}, not {files}")
            check(memory_of(p) == memory, f"{memory_of(p)} bytes of GPU memory are free, not {memory}")
        d.stop()
        wait_for(30, lambda: changed_code(p.pid, "libcuda.so.1") == (0, 0), "without the daemon the code is as in the file")
        finish(p)
        print("ok leaves nothing")


def is_traced(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return "TracerPid:\t0\n" not in f.read()


def refusals():
    with Daemon(build) as d:
        p = subprocess.Popen(["true"])
        p.wait()
        d.agent_ctl("attach", p.pid, fails="no process")
        p = d.popen("-n", "10", "--pause-ms", "600000")
        wait_for(20, lambda: any(row["pid"] == p.pid and row["agent"] == "active" for row in d.json_rows("ps")),
                 "it has the agent")
        d.agent_ctl("attach", p.pid, fails="since it started")
        d.agent_ctl("detach", p.pid, fails="was started with the agent")
        p.kill()
        p.communicate()
        p = start(d, "1")
        tracer = subprocess.Popen(["strace", "-f", "-qq", "-e", "trace=none", "-p", str(p.pid)], stderr=subprocess.DEVNULL) \
            if os.path.exists("/usr/bin/strace") else None
        if tracer:
            wait_for(20, lambda: is_traced(p.pid), "strace traces it")
            d.agent_ctl("attach", p.pid, fails="traces it already")
            tracer.terminate()
            tracer.wait()
        # Who may read the build directory, wherever it is, and nothing else.
        d.agent_ctl("attach", p.pid, fails="another user's",
                    under=("setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps", "+dac_read_search",
                           "--ambient-caps", "+dac_read_search"))
        d.agent_ctl("attach", p.pid, fails="tracing it is not permitted",
                    under=("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"))
        finish(p)


def main():
    check_once(records, lambda shares: min(shares) > 0.99, "with start and end, exact; with start the second time")
    for _ in range(3):
        check_once(launched_all_the_time, lambda found: found[0] > 0.99 and not found[1], "exact, records of no launch")
    storm("0", "sleep")
    storm("4", "malloc")
    storm("2", "signals")
    leaves_nothing()
    refusals()


main()
