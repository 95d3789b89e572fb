#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process on two simulated GPUs whose clocks are far apart.

usage: gpus_test.py BUILD SIM_GPUS

Every launch finds its record, which has the right GPU and times within its call and
the end of the process, whichever GPU's clock is ahead.
"""
import sqlite3
import subprocess
import sys
import time

from daemon import Daemon, check, check_once

LAUNCHES = 1000


def records(d, pid):
    with sqlite3.connect(f"file:{d.database}?mode=ro", uri=True) as db:
        return db.execute("SELECT kernel, gpu, match, end_kind, cpu_enter_ns, gpu_start_ns, gpu_end_ns, clock_error_ns"
                          " FROM launches WHERE pid = ?", (pid,)).fetchall()


def possible(record, begun, ended):
    _, _, match, _, enter, start, end, error = record
    if start is None:
        return match == "none" and end is None and enter >= begun
    return start + error >= enter >= begun and (end is None or start <= end <= ended + error)


def try_one(build, program, mode, apart):
    with Daemon(build) as d:
        begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        p = subprocess.Popen([program, mode, str(LAUNCHES)], text=True, stdout=subprocess.PIPE,
                             env=d.environment(GPUOBS_SIM_DEVICES="2", GPUOBS_SIM_CLOCK_APART_NS=str(apart % 2**64)))
        out, _ = p.communicate(timeout=60)
        ended = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        check(p.returncode == 0 and out == f"launches {2 * LAUNCHES}\n", f"{program}: {p.returncode} {out}")
        ledger = d.settled(p.pid)
        rows = records(d, p.pid)
    exact = sum(1 for r in rows if r[2] == "exact" and r[3] == "measured")
    wrong = sum(1 for r in rows if r[1] != (r[0] == "odd"))
    impossible = [r for r in rows if not possible(r, begun, ended)]
    print(f"{mode}, clocks {apart} ns apart: {len(rows)} records, {exact} exact with start and end, {wrong} of the wrong "
          f"GPU, {len(impossible)} with impossible times {impossible[:1]}; lost {ledger['lost']}")
    check(len(rows) == 2 * LAUNCHES and not wrong and not impossible, f"{mode} {apart}")
    return exact


def main():
    for mode in ("threads", "switch"):
        for apart in (3_000_000_000, -7_000_000_000, 1_000_000):
            check_once(lambda m=mode, a=apart: try_one(sys.argv[1], sys.argv[2], m, a),
                       lambda exact: exact == 2 * LAUNCHES, f"exact ones, {mode} {apart}")


if __name__ == "__main__":
    main()
