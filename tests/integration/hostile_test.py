#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents that lie, beside one that does not, on the simulated GPU.

usage: hostile_test.py BUILD HOSTILE_AGENT

Whatever they say and write, the daemon stays, answers, keeps its size and its files, and counts what
it refuses; each launch of the honest process is stored, and joined as it is without liars.
"""
import os
import resource
import socket
import subprocess
import sys
import time

from daemon import Daemon, check, check_once, wait_for

BUILD, HOSTILE = (os.path.abspath(a) for a in sys.argv[1:3])
HONEST = ("-n", "3000", "-t", "2", "-s", "2", "--sync", "50")
WHOLE = 0.998  # the very last launches of a process may find no record
GROWN_KIB = 256 << 10
ANSWER_S = 5
SO_PASSRIGHTS = 83

# What becomes of each kind of lie: causes of which at least one must have been counted.
MODES = {
    "images": ("coverage_full",),
    "answers": ("agent_protocol",),
    "rings": ("agent_record_torn", "device_record_garbage", "device_ring_overrun"),
    "nonsense": ("agent_protocol",),
    "twice": ("agent_refused",),
    "crowd": (),
}


def causes(d, pid):
    ledger = d.ledger(pid)
    return {c["cause"]: c["count"] for c in ledger["causes"]} if ledger else {}


def answers(d):
    before = time.monotonic()
    d.ctl("status")
    check(time.monotonic() - before < ANSWER_S, f"status took {time.monotonic() - before:.1f} s")


def files(d):
    return len(os.listdir(f"/proc/{d.process.pid}/fd"))


def more_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))


def attack(d, mode):
    had = files(d)
    honest = d.popen(*HONEST, "--pause-ms", "2000")
    wait_for(20, lambda: any(p["pid"] == honest.pid and p["agent"] == "active" for p in d.json_rows("ps")),
             "the honest agent is there")
    rss = d.rss_kib()
    liar = subprocess.Popen([HOSTILE, d.agent, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            preexec_fn=more_files)
    answers(d)
    check(liar.stdout.readline() == "ready\n", f"{mode}: it said all it had to say: {liar.poll()}")
    answers(d)
    grown = d.rss_kib() - rss
    check(grown < GROWN_KIB, f"{mode}: the daemon grew by {grown} KiB")
    out, err = honest.communicate(timeout=120)
    check(honest.returncode == 0, f"{mode}: sim_launch ended with {honest.returncode}: {err}")
    issued = int(dict(line.split(" ", 1) for line in out.splitlines() if " " in line)["launches"])
    liar.communicate("\n", timeout=30)
    check(liar.returncode == 0, f"{mode}: {liar.returncode}")
    ledger = d.settled(honest.pid)
    check(ledger["produced"] == ledger["stored"] == issued, f"{mode}: {issued} launches, {ledger}")
    rows = d.json_rows("launches", "--pid", str(honest.pid), "--limit", "0")
    good = sum(1 for r in rows if "gpu_start_ns" in r and "gpu_end_ns" in r)
    check(len(rows) == issued, f"{mode}: {len(rows)} rows, {issued} issued: {causes(d, honest.pid)}")
    check(not causes(d, honest.pid).get("agent_protocol"), f"{mode}: the honest one is believed: {causes(d, honest.pid)}")
    wait_for(20, lambda: not MODES[mode] or any(causes(d, liar.pid).get(c) for c in MODES[mode]),
             lambda: f"{mode}: {causes(d, liar.pid)}")
    counted = causes(d, liar.pid)
    wait_for(20, lambda: files(d) <= had + 8, f"{mode}: {files(d)} files are open, {had} before")
    d.alive()
    print(f"ok {mode}: {good} of {issued} honest launches whole; grown by {grown} KiB; {counted}", flush=True)
    return good / issued, causes(d, honest.pid)


def files_are_refused(d):
    """What is sent along with a message would be closed by the daemon, whatever it is."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
        except OSError:
            print("files that are sent cannot be refused on this kernel")
            return
    for path, kind in ((d.api, socket.SOCK_STREAM), (d.agent, socket.SOCK_SEQPACKET)):
        with socket.socket(socket.AF_UNIX, kind) as s:
            s.connect(path)
            try:
                socket.send_fds(s, [b"x"], [0])
            except PermissionError:
                continue
            raise AssertionError(f"{path} takes files")
    print("ok files are refused")


def main():
    modes = sys.argv[3:] or MODES
    with Daemon(BUILD) as d:
        files_are_refused(d)
        for mode in modes:
            check_once(lambda m=mode: attack(d, m), lambda whole: whole[0] >= WHOLE, f"{mode}: whole launches")
        check(int(d.run("-n", "100")["launches"]) == 100, "one that comes afterwards")
        answers(d)


main()
