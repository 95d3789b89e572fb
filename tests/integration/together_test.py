#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes side by side on the simulated GPU, one of which is killed while it launches.

usage: together_test.py BUILD

The others' records are whole and their results right; of the one that was killed,
everything that was seen is either stored or counted as lost, and nothing of it is
left behind in the daemon.
"""
import signal
import sqlite3
import sys
import time

from daemon import Daemon, check, check_once, wait_for

LAUNCHES = 6000


def rows(d, pid):
    with sqlite3.connect(f"file:{d.database}?mode=ro", uri=True) as db:
        return db.execute("SELECT gpu_start_ns IS NOT NULL, end_kind, match FROM launches WHERE pid = ?",
                          (pid,)).fetchall()


def finish(p):
    out, err = p.communicate(timeout=200)
    check(p.returncode == 0, f"sim_launch ended with {p.returncode}: {err}")
    return dict(line.split(" ", 1) for line in out.splitlines() if " " in line)


def check_survivor(d, pid, said):
    issued = int(said["launches"])
    ledger = d.settled(pid)
    records = rows(d, pid)
    timed = sum(1 for start, end, match in records if start and end == "measured" and match == "exact")
    print(f"{pid}: {issued} launches, {len(records)} records, {timed} exact with start and end; lost {ledger['lost']}")
    check(ledger["produced"] == issued, f"{ledger['produced']} of {issued} launches seen")
    check(len(records) == ledger["stored"], f"{len(records)} records, {ledger['stored']} said to be stored")
    return timed / issued


def attempt():
    """The least share of a survivor's launches that are exact with start and end."""
    with Daemon(sys.argv[1]) as d:
        endless = d.popen("-n", "100000000", "-t", "2", "-s", "2", "--quiet")
        others = [d.popen("-n", str(LAUNCHES), "-s", "2", "--sync", "50") for _ in range(2)]
        wait_for(30, lambda: (d.ledger(endless.pid) or {"stored": 0})["stored"] > 500, "the third process launches")
        endless.send_signal(signal.SIGKILL)
        check(endless.wait(30) == -signal.SIGKILL, "the process to be killed ended by itself")
        endless.communicate()
        share = min(check_survivor(d, p.pid, finish(p)) for p in others)
        ledger = d.settled(endless.pid)
        records = rows(d, endless.pid)
        print(f"killed: {len(records)} records; ledger {ledger['produced']} = {ledger['stored']} + {ledger['lost']}")
        check(len(records) == ledger["stored"], f"{len(records)} records of {ledger['stored']} said to be stored")
        time.sleep(0.5)
        check(d.alive(), "gpuobsd runs")
        return share


check_once(attempt, lambda share: share >= 0.99, "launches that are exact with start and end")
