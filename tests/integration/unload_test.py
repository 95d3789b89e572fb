#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that opens and closes a library with kernels over and over, on the simulated GPU.

usage: unload_test.py BUILD SIM_UNLOAD SIM_PLUGIN

Its kernels do what they do without the agent, each launch is recorded with start and
end, and neither the program nor the daemon grows with the number of rounds.
"""
import os
import sqlite3
import subprocess
import sys

from daemon import Daemon, check

ROUNDS = 1500
# Coverage keeps an entry for each image and kernel of a living process: some hundred bytes.
DAEMON_KIB = 4096
PROCESS_KIB = 1024

build, sim_unload, sim_plugin = (os.path.abspath(a) for a in sys.argv[1:4])


def run(d, rounds, agent):
    p = subprocess.Popen([sim_unload, sim_plugin, str(rounds)], env=d.environment(agent), text=True,
                         stdout=subprocess.PIPE)
    out, _ = p.communicate(timeout=200)
    check(p.returncode == 0, f"sim_unload ended with {p.returncode}")
    return p.pid, {key: int(value) for key, value in (line.split() for line in out.splitlines())}


def records(d, pid):
    with sqlite3.connect(f"file:{d.database}?mode=ro", uri=True) as db:
        return db.execute("SELECT kernel, gpu_start_ns IS NOT NULL, end_kind FROM launches WHERE pid = ?",
                          (pid,)).fetchall()


def main():
    with Daemon(build) as d:
        _, alone = run(d, ROUNDS, agent=False)
        run(d, ROUNDS // 10, agent=True)  # what grows once has grown
        before = d.rss_kib()
        pid, said = run(d, ROUNDS, agent=True)
        d.settled(pid)
        rows = records(d, pid)
        grown = said["resident_late"] - said["resident_early"]
        grown_alone = alone["resident_late"] - alone["resident_early"]
        print(f"{len(rows)} records; the program grows by {grown_alone} KiB alone, {grown} KiB with the agent; "
              f"the daemon by {d.rss_kib() - before} KiB")
        check(len(rows) == said["launches"] == ROUNDS, f"{len(rows)} records of {ROUNDS} launches")
        bad = [r for r in rows if r != ("plugin_add", 1, "measured")]
        check(not bad, f"{len(bad)} records are not as they should be, such as {bad[:1]}")
        check(grown - grown_alone < PROCESS_KIB, "the program grows with each image")
        check(d.rss_kib() - before < DAEMON_KIB, "the daemon grows with each image")
        images = d.json_rows("coverage", "--pid", str(pid))
        check(len(images) == ROUNDS and all(i["rewritten"] for i in images), f"{len(images)} images covered")


main()
